// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
)

// maxConfig is the most bytes of a configuration file.
const maxConfig = 64 << 10

// reloadable lists the options that SIGHUP changes without losing the books.
var reloadable = []string{"keep"}

// serveConfig is the configuration file of serve: "keep: 30m", one option per line.
type serveConfig struct {
	c      *cli.Context
	path   string              // "": none
	values map[string][]string // as they were read last
	fixed  map[string]bool     // options of the command line, which take precedence
}

// readServeConfig sets the options that the configuration file has and the command line lacks.
func readServeConfig(c *cli.Context) (*serveConfig, error) {
	x := &serveConfig{c: c, path: c.String("config"), fixed: map[string]bool{}}
	for _, name := range c.LocalFlagNames() {
		x.fixed[name] = true
	}
	if x.path == "" {
		return x, nil
	}
	values, err := x.read()
	if err != nil {
		return nil, fault.Usage(err)
	}
	x.values = values
	for name, list := range values {
		if err := x.set(name, list); err != nil {
			return nil, fault.Usage(err)
		}
	}
	return x, nil
}

func (x *serveConfig) read() (map[string][]string, error) {
	f, err := os.Open(x.path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", x.path, output.Cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", x.path, output.Cause(err))
	}
	if len(text) > maxConfig {
		return nil, fmt.Errorf("read %s: larger than %d bytes", x.path, maxConfig)
	}
	return parseServeConfig(x.path, text)
}

// parseServeConfig reads options by name. Each has one value or a list.
func parseServeConfig(path string, text []byte) (map[string][]string, error) {
	var raw map[string]any
	if err := yaml.UnmarshalStrict(text, &raw); err != nil {
		return nil, fmt.Errorf("read %s: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	values := map[string][]string{}
	for name, value := range raw {
		if !slices.ContainsFunc(serveFlags(), func(f cli.Flag) bool { return name != "config" && f.Names()[0] == name }) {
			return nil, fmt.Errorf("read %s: unknown option %q (see vramprof serve --help)", path, name)
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, one := range list {
			if one == nil {
				one = ""
			}
			if k := reflect.ValueOf(one).Kind(); k == reflect.Map || k == reflect.Slice {
				return nil, fmt.Errorf("read %s: %s is neither a value nor a list of values", path, name)
			}
			values[name] = append(values[name], fmt.Sprint(one))
		}
	}
	return values, nil
}

func (x *serveConfig) set(name string, list []string) error {
	if x.fixed[name] {
		return nil
	}
	for _, value := range list {
		if err := x.c.Set(name, value); err != nil {
			return fmt.Errorf("read %s: %s: invalid value %q", x.path, name, value)
		}
	}
	return nil
}

// reload reads the file again on each SIGHUP, until ctx ends. A file with a mistake changes
// nothing.
func (x *serveConfig) reload(ctx context.Context, s *server, systemd *notifier) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		systemd.reloading()
		if err := x.again(s); err != nil {
			s.log.Error("reload", "error", err)
		}
		systemd.ready()
	}
}

func (x *serveConfig) again(s *server) error {
	if x.path == "" {
		return fmt.Errorf("there is no configuration file (start vramprof serve with --config)")
	}
	values, err := x.read()
	if err != nil {
		return err
	}
	var restart []string
	defaults := defaultValues()
	for _, name := range changed(x.values, values) {
		if !slices.Contains(reloadable, name) {
			restart = append(restart, name)
			continue
		}
		list := values[name]
		if list == nil {
			list = defaults[name]
		}
		if err := x.set(name, list); err != nil {
			return err
		}
	}
	if err := s.set(x.c); err != nil {
		return err
	}
	x.values = values
	s.log.Info("reloaded", "config", x.path)
	if len(restart) > 0 {
		s.log.Warn("options changed that only a restart applies", "options", restart)
	}
	return nil
}

// changed returns the names whose values differ, in order.
func changed(before, now map[string][]string) (names []string) {
	for name := range before {
		if !slices.Equal(before[name], now[name]) {
			names = append(names, name)
		}
	}
	for name := range now {
		if _, both := before[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// defaultValues returns the values of the reloadable options without any setting.
func defaultValues() map[string][]string {
	values := map[string][]string{}
	for _, f := range serveFlags() {
		if x, ok := f.(*cli.StringFlag); ok {
			values[x.Name] = []string{x.Value}
		}
	}
	return values
}
