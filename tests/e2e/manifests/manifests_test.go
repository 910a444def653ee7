// Package manifests decodes the Kubernetes manifests of the documents.
package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	policy "k8s.io/api/policy/v1"
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
			for _, manifest := range strings.Split(block[1], "\n---\n") {
				var head struct{ APIVersion, Kind string }
				require.NoError(t, yaml.Unmarshal([]byte(manifest), &head), "%s", page)
				kind := head.APIVersion + " " + head.Kind
				into := map[string]any{
					"apps/v1 Deployment":            &apps.Deployment{},
					"batch/v1 CronJob":              &batch.CronJob{},
					"policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{},
				}[kind]
				require.NotNil(t, into, "%s: %s: no type to decode it into", page, kind)
				require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), into), "%s: %s", page, kind)
				found[kind]++
			}
		}
	}
	require.Len(t, found, 3, "%v", found)
}
