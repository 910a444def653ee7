// Package manifests decodes the Kubernetes manifests of the documents.
package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

// Each manifest of a page is one that the API takes: a name that it does not know is an error.
func TestEveryManifestIsOneOfTheKubernetesAPI(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*/*.md")
	require.NoError(t, err)
	found := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)```yaml\n(apiVersion:.*?)```").FindAllStringSubmatch(string(text), -1) {
			var head struct{ APIVersion, Kind string }
			require.NoError(t, yaml.Unmarshal([]byte(block[1]), &head), "%s", page)
			kind := head.APIVersion + " " + head.Kind
			into := map[string]any{
				"apps/v1 Deployment": &apps.Deployment{},
				"batch/v1 CronJob":   &batch.CronJob{},
			}[kind]
			require.NotNil(t, into, "%s: %s: no type to decode it into", page, kind)
			require.NoError(t, yaml.UnmarshalStrict([]byte(block[1]), into), "%s: %s", page, kind)
			found[kind]++
		}
	}
	require.Len(t, found, 2, "%v", found)
}
