// SPDX-License-Identifier: Apache-2.0

// Package metrics turns snapshots into Prometheus metrics.
//
//	c := metrics.New(metrics.Options{Stacks: tracer, Version: "1.2.3"})
//	registry.MustRegister(c)
//	c.Set(snapshot, metrics.Own{}) // before each scrape
//
// A row is one set of the labels gpu, UUID, namespace, pod, container, hpc_job and user. The planes
// of a row add up to what NVML reports for its processes on that GPU. Values of labels come from
// traced processes: they are cleaned, truncated and bounded in number. No label is a stack or an
// address; pid, comm, rank and actor are labels only with Options.PID.
package metrics
