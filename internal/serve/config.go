// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/tracer/archive"
)

// maxConfig is the most bytes of a configuration file.
const maxConfig = 64 << 10

// reloadable is the option that SIGHUP changes without losing the books.
const reloadable = "keep"

// Config chooses what is traced, who may ask, and what is kept.
type Config struct {
	Session session.Config
	File    *ConfigFile
	Version string
	Keep    time.Duration // how long the books have processes that ended

	Addresses  []string // to listen on
	Hosts      []string // of requests, besides the usual ones
	Users      []uint32 // of this machine who see the processes of all
	WebConfig  string   // path of a file for TLS and passwords; "": none
	RunDir     string   // of the socket of --connect; "": none
	MetricsPID bool     // metrics have labels of processes

	Archive string // folder; "": none
	History archive.Options
	Records int // of out-of-memory errors, that the archive keeps
	Alerts  Alerts
}

// ConfigFile is the configuration file of serve: "keep: 30m", one option per line.
type ConfigFile struct {
	path  string // "": none
	known func(name string) bool

	Values map[string][]string // as they were read last
	Keep   string              // of the command line, or the default; see Fixed
	Fixed  bool                // Keep is of the command line, which takes precedence
}

// ReadConfig reads a configuration file, unless path is "". Its options are those that known knows.
func ReadConfig(path string, known func(name string) bool) (*ConfigFile, error) {
	x := &ConfigFile{path: path, known: known}
	if path == "" {
		return x, nil
	}
	var err error
	if x.Values, err = x.read(); err != nil {
		return nil, fault.Usage(err)
	}
	return x, nil
}

func (x *ConfigFile) read() (map[string][]string, error) {
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
	return parseConfig(x.path, text, x.known)
}

// parseConfig reads options by name. Each has one value or a list.
func parseConfig(path string, text []byte, known func(name string) bool) (map[string][]string, error) {
	var raw map[string]any
	if err := yaml.UnmarshalStrict(text, &raw); err != nil {
		return nil, fmt.Errorf("read %s: %s", path, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	values := map[string][]string{}
	for name, value := range raw {
		if !known(name) {
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

// reload reads the file again on each SIGHUP, until ctx ends. A file with a mistake changes
// nothing.
func (x *ConfigFile) reload(ctx context.Context, s *server, systemd *notifier) {
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

func (x *ConfigFile) again(s *server) error {
	if x.path == "" {
		return fmt.Errorf("there is no configuration file (start vramprof serve with --config)")
	}
	values, err := x.read()
	if err != nil {
		return err
	}
	if !x.Fixed {
		text := x.Keep
		if list := values[reloadable]; len(list) > 0 {
			text = list[len(list)-1]
		}
		keep, err := duration.Parse(text)
		if err != nil {
			return fmt.Errorf("--keep: %w", err)
		}
		s.keep.Store(int64(keep))
	}
	restart := slices.DeleteFunc(changed(x.Values, values), func(name string) bool { return name == reloadable })
	x.Values = values
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
