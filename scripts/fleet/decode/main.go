// SPDX-License-Identifier: Apache-2.0

// Decode reads Kubernetes objects as YAML from standard input and decodes them strictly into the
// types of k8s.io/api and of the Prometheus operator: an unknown or repeated field is an error. It
// prints a line for each. It is a module of its own to keep these types out of vramprof's.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	document "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

var kinds = map[meta.TypeMeta]func() any{
	{APIVersion: "v1", Kind: "Namespace"}:                            func() any { return new(core.Namespace) },
	{APIVersion: "v1", Kind: "ServiceAccount"}:                       func() any { return new(core.ServiceAccount) },
	{APIVersion: "v1", Kind: "Service"}:                              func() any { return new(core.Service) },
	{APIVersion: "v1", Kind: "ConfigMap"}:                            func() any { return new(core.ConfigMap) },
	{APIVersion: "apps/v1", Kind: "DaemonSet"}:                       func() any { return new(apps.DaemonSet) },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:      func() any { return new(networking.NetworkPolicy) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PodMonitor"}:     func() any { return new(monitoring.PodMonitor) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}: func() any { return new(monitoring.ServiceMonitor) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}: func() any { return new(monitoring.PrometheusRule) },
}

func main() {
	if err := decode(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "decode:", err)
		os.Exit(1)
	}
}

func decode(from io.Reader, to io.Writer) error {
	for n, documents := 0, document.NewYAMLReader(bufio.NewReader(from)); ; {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return errors.New("no object")
			}
			return nil
		} else if err != nil {
			return err
		}
		var object struct {
			meta.TypeMeta `json:",inline"`
			Metadata      struct{ Name string } `json:"metadata"`
		}
		if err := yaml.Unmarshal(text, &object); err != nil {
			return err
		}
		if object.Kind == "" {
			continue // only comments
		}
		make, ok := kinds[object.TypeMeta]
		if !ok {
			return fmt.Errorf("unexpected %s of %s", object.Kind, object.APIVersion)
		}
		if err := strict(text, make()); err != nil {
			return fmt.Errorf("%s %s: %w", object.Kind, object.Metadata.Name, err)
		}
		n++
		fmt.Fprintln(to, object.Kind, object.Metadata.Name)
	}
}

// strict decodes as the API server does, where names of fields have one spelling.
func strict(text []byte, into any) error {
	object, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	mistakes, err := json.UnmarshalStrict(object, into)
	return errors.Join(append(mistakes, err)...)
}
