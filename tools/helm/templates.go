package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

// maxDepth is the number of times that Helm lets a template include itself.
const maxDepth = 1000

type release struct {
	Name, Namespace, Service string
	IsInstall, IsUpgrade     bool
	Revision                 int
}

type kubeVersion struct{ Version, Major, Minor string }

func (v kubeVersion) String() string { return v.Version }

type apiVersions []string

func (a apiVersions) Has(name string) bool {
	for _, version := range a {
		if version == name {
			return true
		}
	}
	return false
}

type capabilities struct {
	KubeVersion kubeVersion
	APIVersions apiVersions
}

// scope is what templates read as ".".
func scope(c chart, name, namespace string, values map[string]interface{}) map[string]interface{} {
	return map[string]interface{}{
		"Values":  values,
		"Chart":   c.metadata,
		"Files":   c.files,
		"Release": release{Name: name, Namespace: namespace, Service: "Helm", IsInstall: true, Revision: 1},
		"Capabilities": capabilities{
			KubeVersion: kubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"},
			APIVersions: apiVersions{"v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "policy/v1"},
		},
	}
}

// renderTemplates returns the texts of all templates but the partials, whose file names begin with "_".
func renderTemplates(c chart, values map[string]interface{}) (map[string]string, error) {
	root := template.New("chart").Option("missingkey=zero")
	root.Funcs(functions(root))
	for name, text := range c.templates {
		if _, err := root.New(name).Parse(text); err != nil {
			return nil, err
		}
	}
	rendered := map[string]string{}
	for name := range c.templates {
		if strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		values["Template"] = map[string]string{"Name": name, "BasePath": path.Join(c.metadata.Name, "templates")}
		text, err := execute(root, name, values)
		if err != nil {
			return nil, err
		}
		rendered[name] = text
	}
	return rendered, nil
}

// execute removes the text for missing values, as Helm does.
func execute(root *template.Template, name string, data interface{}) (string, error) {
	var text strings.Builder
	err := root.ExecuteTemplate(&text, name, data)
	return strings.ReplaceAll(text.String(), "<no value>", ""), err
}

// functions are those of sprig and of Helm. Helm, too, leaves out the two that read the environment.
func functions(root *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	depths := map[string]int{}
	all["include"] = func(name string, data interface{}) (string, error) {
		if depths[name]++; depths[name] > maxDepth {
			return "", fmt.Errorf("template %s includes itself", name)
		}
		defer func() { depths[name]-- }()
		return execute(root, name, data)
	}
	all["tpl"] = func(text string, data interface{}) (string, error) {
		copied, err := root.Clone()
		if err != nil {
			return "", err
		}
		copied.Funcs(functions(copied))
		if _, err := copied.New("tpl").Parse(text); err != nil {
			return "", err
		}
		return execute(copied, "tpl", data)
	}
	all["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	all["fail"] = func(message string) (string, error) { return "", errors.New(message) }
	all["lookup"] = func(_, _, _, _ string) map[string]interface{} { return map[string]interface{}{} }
	all["toYaml"] = toYaml
	all["toJson"] = toJSON
	all["fromYaml"] = fromYaml
	all["fromYamlArray"] = fromYamlArray
	all["fromJson"] = fromYaml
	all["fromJsonArray"] = fromYamlArray
	return all
}

func toYaml(value interface{}) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

func toJSON(value interface{}) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

func fromYaml(text string) map[string]interface{} {
	value := map[string]interface{}{}
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		value["Error"] = err.Error()
	}
	return value
}

func fromYamlArray(text string) []interface{} {
	value := []interface{}{}
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return []interface{}{err.Error()}
	}
	return value
}
