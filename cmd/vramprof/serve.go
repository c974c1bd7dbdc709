// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"os/user"
	"regexp"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/remote"
	"github.com/vramprof/vramprof/internal/serve"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/archive"
)

const (
	defaultAddress = "localhost:9836"
	defaultKeep    = "10m"
	defaultArchive = "/var/lib/vramprof"
)

func serveCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Usage:     "trace every CUDA process as a daemon, for Prometheus, pprof over HTTP and a live page",
		UsageText: "vramprof serve [OPTIONS]",
		Description: "Traces until SIGTERM or Ctrl-C. It listens on " + defaultAddress + ", keeps processes that ended for a while, and forgets the rest. " +
			"SIGHUP reads --config again, SIGUSR1 closes NVML for a minute. It logs JSON to stderr, one object per line.",
		Flags:  serveFlags(),
		Action: p.serve,
	}
}

func serveFlags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "read options from the YAML `FILE`, with the names of these flags; flags take precedence"},
		&cli.StringFlag{Name: "name", Usage: "trace only processes whose name, program or script matches the regular expression `REGEX`"},
		&cli.StringFlag{Name: "keep", Value: defaultKeep, Usage: "forget processes `TIME` after they ended"},
		&cli.StringSliceFlag{Name: "web.listen-address", Value: cli.NewStringSlice(defaultAddress), Usage: "listen on `ADDRESS` (repeatable)"},
		&cli.StringSliceFlag{Name: "web.external-host", Usage: "also answer requests for host `NAME`, as a reverse proxy or a DNS server has it (repeatable)"},
		&cli.StringSliceFlag{Name: "web.user", Usage: "let `USER` of this machine see the processes of all users, as root does; others see their own (repeatable)"},
		&cli.StringFlag{Name: "web.config.file", Usage: "read TLS and basic authentication from `FILE`, in the format of Prometheus exporters"},
		&cli.BoolFlag{Name: "metrics-pid", Usage: "give metrics the labels pid, comm, rank and actor: one set of series per process"},
		&cli.StringFlag{Name: "run-dir", Value: remote.DefaultRunDir, Usage: "create the socket for --connect in `DIR`; \"\": none"},
		&cli.StringFlag{Name: "tensors", Value: "auto", Usage: "trace PyTorch tensors: `WHEN` is auto, on or off"},
		budgetFlag("2"),
		&cli.StringFlag{Name: "sample", Value: "auto", Usage: "take the stack of one tensor in `BYTES` on average; 0: of every tensor; auto: 1MiB, less often above 4,000 stacks per second"},
		driverObjectsFlag(),
		&cli.StringFlag{Name: "holders", Value: "10m", Usage: "look for who keeps PyTorch's tensors: `WHEN` is off, end (at the attach) or also every 30s, 10m, …"},
		&cli.BoolFlag{Name: "no-names", Usage: "read classes of holders, not names of variables, attributes and keys"},
		&cli.StringFlag{Name: "max-memory", Value: "auto", Usage: "drop detail before vramprof exceeds `BYTES`; auto: a quarter of the memory, 512MiB to 4GiB"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "also log what is probed"},
		mineFlag(),
	}, cacheFlags(), archiveFlags(), alertFlags())
}

func archiveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "archive", Value: defaultArchive, Usage: "keep captures of the past in `DIR`; \"\": none"},
		&cli.StringFlag{Name: "archive-size", Value: "1GiB", Usage: "keep at most `BYTES` of captures; the oldest are deleted first"},
		&cli.StringFlag{Name: "archive-age", Value: "720h", Usage: "keep captures for at most `TIME`"},
		&cli.IntFlag{Name: "oom-keep", Value: archive.DefaultRecords, Usage: "keep records of `N` out-of-memory errors in the archive; 0: none"},
	}
}

func alertFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "on-oom", Usage: "run `COMMAND` with sh -c for each out-of-memory error, which it gets as JSON on its standard input"},
		&cli.StringFlag{Name: "on-leak", Usage: "run `COMMAND` in the same way when a line of code is found to leak, or a GPU fills without such a line"},
		&cli.StringFlag{Name: "alert-user", Value: "nobody", Usage: "run these commands as `USER`"},
		&cli.IntFlag{Name: "alert-limit", Value: 6, Usage: "run each of them at most `N` times per minute"},
	}
}

func (p *program) serve(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	file, err := readServeConfig(c)
	if err != nil {
		return err
	}
	config, err := p.serveConfig(c)
	if err != nil {
		return err
	}
	config.File = file
	return serve.Run(c.Context, config)
}

// serveConfig reads the flags of serve.
func (p *program) serveConfig(c *cli.Context) (config serve.Config, err error) {
	config = serve.Config{
		Version: version, Addresses: c.StringSlice("web.listen-address"), Hosts: c.StringSlice("web.external-host"), WebConfig: c.String("web.config.file"),
		RunDir: c.String("run-dir"), MetricsPID: c.Bool("metrics-pid"), Archive: c.String("archive"), Records: c.Int("oom-keep"),
		Alerts: serve.Alerts{OnOOM: c.String("on-oom"), OnLeak: c.String("on-leak"), User: c.String("alert-user"), Limit: c.Int("alert-limit")},
	}
	if config.Users, err = usersOf(c); err != nil {
		return config, err
	}
	if config.Keep, err = duration.Parse(c.String("keep")); err != nil {
		return config, fault.Usage(fmt.Errorf("--keep: %w", err))
	}
	if _, err := regexp.Compile(c.String("mine")); err != nil { // of the file, whose options are not checked before
		return config, fault.Usage(fmt.Errorf("--mine: %w", err))
	}
	if config.Session, err = p.sessionConfig(c); err != nil {
		return config, err
	}
	if config.History, err = archiveOptions(c); err != nil {
		return config, err
	}
	for _, name := range []string{"on-oom", "on-leak"} {
		if c.IsSet(name) && c.String(name) == "" {
			return config, fault.Usage(fmt.Errorf("--%s is empty", name))
		}
	}
	if config.Alerts.Limit < 1 {
		return config, fault.Usage(errors.New("--alert-limit is at least 1"))
	}
	if config.Records < 0 {
		return config, fault.Usage(errors.New("--oom-keep is negative"))
	}
	return config, nil
}

// readServeConfig sets the options that the configuration file has and the command line lacks.
func readServeConfig(c *cli.Context) (*serve.ConfigFile, error) {
	file, err := serve.ReadConfig(c.String("config"), isServeOption)
	if err != nil {
		return nil, err
	}
	fixed := c.LocalFlagNames()
	file.Keep, file.Fixed = c.String("keep"), slices.Contains(fixed, "keep")
	for name, list := range file.Values {
		if slices.Contains(fixed, name) {
			continue
		}
		for _, value := range list {
			if err := c.Set(name, value); err != nil {
				return nil, fault.Usage(fmt.Errorf("read %s: %s: invalid value %q", c.String("config"), name, value))
			}
		}
	}
	return file, nil
}

// isServeOption reports whether the configuration file may have an option.
func isServeOption(name string) bool {
	return name != "config" && slices.ContainsFunc(serveFlags(), func(f cli.Flag) bool { return f.Names()[0] == name })
}

// usersOf returns the users of --web.user.
func usersOf(c *cli.Context) (list []uint32, err error) {
	for _, name := range c.StringSlice("web.user") {
		id := name
		if u, err := user.Lookup(name); err == nil {
			id = u.Uid
		}
		uid, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, fault.Usage(fmt.Errorf("--web.user: there is no user %q", name))
		}
		list = append(list, uint32(uid))
	}
	return list, nil
}

// archiveOptions reads the flags of the archive.
func archiveOptions(c *cli.Context) (o archive.Options, err error) {
	size, err := humanize.ParseBytes(c.String("archive-size"))
	if err != nil || size < archive.LeastSize || size > math.MaxInt64 {
		return o, fault.Usage(fmt.Errorf("--archive-size: %q is not a number of bytes from %s on", c.String("archive-size"), format.Bytes(archive.LeastSize)))
	}
	if o.Age, err = duration.Parse(c.String("archive-age")); err != nil {
		return o, fault.Usage(fmt.Errorf("--archive-age: %w", err))
	}
	o.Size, o.Tool = int64(size), "vramprof "+version
	return o, nil
}
