// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vramprof/vramprof/report/metrics"
)

// maxScrapes is how many scrapes run at once. Further ones are answered with 503.
const maxScrapes = 4

// routeMetrics serves metrics to Prometheus, in its own format or in OpenMetrics as the client
// asks for. Beside those of the books there are the usual ones of a Go process: its memory,
// processor time and garbage collection.
func (s *Server) routeMetrics(mux *http.ServeMux) {
	session := s.config.Session
	books := metrics.New(metrics.Options{Stacks: session, Version: session.Own().Version, PID: s.config.MetricsPID})
	registry := prometheus.NewRegistry()
	registry.MustRegister(books, collectors.NewGoCollector(), ofProcess{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})})
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError,
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		books.Set(s.now().Snapshot, metricsOf(session.Own()))
		scrape.ServeHTTP(w, r)
	})
}

// ofProcess leaves out what the collector of processes has of the whole machine: its network.
type ofProcess struct{ prometheus.Collector }

func (c ofProcess) Collect(to chan<- prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		defer close(all)
		c.Collector.Collect(all)
	}()
	for m := range all {
		if !strings.Contains(m.Desc().String(), `"process_network_`) {
			to <- m
		}
	}
}

func metricsOf(o Own) metrics.Own {
	x := metrics.Own{Memory: o.Memory, Limit: o.Ceiling, Kernel: o.Kernel, Dropped: uint64(max(o.Dropped, 0)), Unrecorded: o.Unstored}
	if o.Began.Unix() > 0 {
		x.Began = o.Began
	}
	if a := o.Archive; a != nil {
		x.Archive = &metrics.Archive{Bytes: a.Bytes, Oldest: a.Oldest, LostEvents: a.LostEvents, LostTime: a.LostTime, Failures: a.Failures}
	}
	return x
}
