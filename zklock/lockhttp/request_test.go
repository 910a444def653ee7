package lockhttp_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zklock/locker/tests/locktest"
	"github.com/zklock/locker/zktest"
)

func TestUploadsUnderALockLeaveNoTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	written := make(chan int, 1)
	c := locktest.Dial(t, zktest.Run(t))
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		err := r.ParseMultipartForm(1 << 10)
		files, _ := filepath.Glob(dir + "/multipart-*")
		written <- len(files)
		if err != nil {
			panic(err)
		}
	})
	srv := httptest.NewServer(locked(c, handler))
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	f, err := m.CreateFormFile("f", "big")
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 11<<20))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	resp, err := http.Post(srv.URL+"/?key=k", m.FormDataContentType(), &b)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 1, <-written)
	srv.Close() // the request has ended, with its files
	left, err := filepath.Glob(dir + "/multipart-*")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestMiddlewareAroundTheLockSeesThePatternAndThePathsValues(t *testing.T) {
	c := locktest.Dial(t, zktest.Run(t))
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/{id}", func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest(http.MethodGet, "/orders/7?key=k", nil)
	locked(c, mux).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "/orders/{id}", r.Pattern)
	require.Equal(t, "7", r.PathValue("id"))
	require.NoError(t, r.Context().Err(), "the work's context is the handler's alone")
}
