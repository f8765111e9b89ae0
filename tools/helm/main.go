// Renders a Helm chart as `helm template` does, for the tests: they must run without Helm, which Debian does not package.
//
//	render CHART RELEASE NAMESPACE < values.json > manifests.yaml
//
// The values on stdin are already merged and checked. The output holds the manifests in the order of their files' names,
// each after a comment with its file. With "--show-notes" it holds the rendered NOTES.txt instead.
//
// Left out of Helm: dependencies, library charts, and the order in which Helm installs kinds.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"sigs.k8s.io/yaml"
)

const notes = "NOTES.txt"

func main() {
	arguments := os.Args[1:]
	showNotes := len(arguments) > 0 && arguments[0] == "--show-notes"
	if showNotes {
		arguments = arguments[1:]
	}
	if len(arguments) != 3 {
		fail(fmt.Errorf("usage: render [--show-notes] CHART RELEASE NAMESPACE < values.json"))
	}
	values, err := readValues(os.Stdin)
	if err != nil {
		fail(err)
	}
	chart, err := loadChart(arguments[0])
	if err != nil {
		fail(err)
	}
	rendered, err := renderTemplates(chart, scope(chart, arguments[1], arguments[2], values))
	if err != nil {
		fail(err)
	}
	write(os.Stdout, rendered, showNotes)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// readValues decodes numbers as float64, as Helm does with those of a chart.
func readValues(input io.Reader) (map[string]interface{}, error) {
	text, err := io.ReadAll(input)
	if err != nil {
		return nil, err
	}
	values := map[string]interface{}{}
	return values, yaml.Unmarshal(text, &values)
}

func write(output io.Writer, rendered map[string]string, showNotes bool) {
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text := strings.TrimSpace(rendered[name])
		if (filepath.Base(name) == notes) != showNotes || text == "" {
			continue
		}
		if showNotes {
			fmt.Fprintln(output, text)
			continue
		}
		for _, document := range strings.Split("\n"+text, "\n---") {
			if document = strings.TrimSpace(document); document != "" {
				fmt.Fprintf(output, "---\n# Source: %s\n%s\n", name, document)
			}
		}
	}
}
