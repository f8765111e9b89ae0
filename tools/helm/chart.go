package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// metadata is the part of Chart.yaml that templates can read as .Chart.
type metadata struct {
	APIVersion  string            `json:"apiVersion"`
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	AppVersion  string            `json:"appVersion"`
	KubeVersion string            `json:"kubeVersion"`
	Description string            `json:"description"`
	Type        string            `json:"type"`
	Annotations map[string]string `json:"annotations"`
}

// chart has the texts of its templates by "CHART/templates/FILE", and all other files by their path in the chart.
type chart struct {
	metadata  metadata
	templates map[string]string
	files     files
}

func loadChart(folder string) (chart, error) {
	loaded := chart{templates: map[string]string{}, files: files{}}
	text, err := os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return loaded, err
	}
	if err := yaml.UnmarshalStrict(text, &loaded.metadata); err != nil {
		return loaded, fmt.Errorf("Chart.yaml: %w", err)
	}
	return loaded, loaded.loadFiles(folder, "")
}

// loadFiles follows symbolic links, as Helm does.
func (c chart) loadFiles(folder, prefix string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name, place := path.Join(prefix, entry.Name()), filepath.Join(folder, entry.Name())
		status, err := os.Stat(place)
		if err != nil {
			return err
		}
		if status.IsDir() {
			if err := c.loadFiles(place, name); err != nil {
				return err
			}
			continue
		}
		text, err := os.ReadFile(place)
		if err != nil {
			return err
		}
		c.add(name, string(text))
	}
	return nil
}

// add leaves out the files that Helm does not offer to templates.
func (c chart) add(name, text string) {
	switch {
	case strings.HasPrefix(name, "templates/"):
		c.templates[path.Join(c.metadata.Name, name)] = text
	case name == "Chart.yaml" || name == "values.yaml" || name == "values.schema.json":
	default:
		c.files[name] = text
	}
}

// files is .Files of the templates.
type files map[string]string

func (f files) Get(name string) string { return f[name] }

func (f files) Glob(pattern string) files {
	matching := files{}
	for name, text := range f {
		if ok, _ := path.Match(pattern, name); ok {
			matching[name] = text
		}
	}
	return matching
}

func (f files) Lines(name string) []string {
	return strings.Split(strings.TrimSuffix(f[name], "\n"), "\n")
}

func (f files) AsConfig() string {
	texts := map[string]string{}
	for name, text := range f {
		texts[path.Base(name)] = text
	}
	return toYaml(texts)
}

func (f files) AsSecrets() string {
	texts := map[string]string{}
	for name, text := range f {
		texts[path.Base(name)] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return toYaml(texts)
}
