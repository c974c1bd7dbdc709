// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"io/fs"
)

// Status is the outcome of one check.
type Status string

const (
	OK   Status = "ok"
	Warn Status = "warn" // tracing works with a limitation or a risk
	Fail Status = "fail" // tracing cannot work
)

// ExitMissing is the exit code for a missing privilege or kernel feature.
const ExitMissing = 4

// Result is the outcome of one check with its explanation.
type Result struct {
	Name   string // "kernel"
	Status Status
	Detail string // what the check found
	Remedy string // what to do about it, or ""
	Code   int    // exit code if vramprof ends because of this: 0, or ExitMissing
}

// ExitCode returns the highest Code of the results.
func ExitCode(results []Result) int {
	code := 0
	for _, r := range results {
		code = max(code, r.Code)
	}
	return code
}

func fail(name, detail, remedy string) Result {
	return Result{Name: name, Status: Fail, Detail: detail, Remedy: remedy, Code: ExitMissing}
}

// reason removes the operation from a path error and prefixes the path with "/".
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return "/" + path.Path + ": " + path.Err.Error()
	}
	return err.Error()
}
