// Package manifests decodes the Kubernetes manifests of the documents.
package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// Each manifest is one that the API takes: a name that it does not know is an error.
func TestEveryManifestIsOneOfTheKubernetesAPI(t *testing.T) {
	files, err := filepath.Glob("../../../docs/how-to/*.yaml")
	require.NoError(t, err)
	found := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, manifest := range strings.Split(string(text), "---\n") {
			var head struct{ APIVersion, Kind string }
			require.NoError(t, yaml.Unmarshal([]byte(manifest), &head), "%s", file)
			kind := head.APIVersion + " " + head.Kind
			into := map[string]any{
				"apps/v1 Deployment":            &apps.Deployment{},
				"batch/v1 CronJob":              &batch.CronJob{},
				"policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{},
			}[kind]
			require.NotNil(t, into, "%s: %s: no type to decode it into", file, kind)
			require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), into), "%s: %s", file, kind)
			found[kind]++
		}
	}
	require.Len(t, found, 3, "%v", found)
}
