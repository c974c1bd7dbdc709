// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"maps"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vramprof/vramprof/report/metrics"
)

// maxScrapes is how many scrapes are composed at once, and maxScraping how many there are with
// those that wait, for composeWait, and that are being written. Other requests take none of these
// places.
const maxScrapes, maxScraping = 4, 32

const metricsPath = "/metrics"

// routeMetrics serves metrics to Prometheus, in its own format or in OpenMetrics as the client
// asks for. All listeners have the same counters.
func (s *Server) routeMetrics(mux *http.ServeMux) {
	mux.HandleFunc("GET "+metricsPath, func(w http.ResponseWriter, r *http.Request) {
		p := s.peerOf(r)
		if s.monitoring.enter(r.Context(), p, 0) != nil {
			busy(w)
			return
		}
		defer s.monitoring.leave(p)
		answer, err := s.scrape(r, p)
		if err != nil {
			writeError(w, err)
			return
		}
		maps.Copy(w.Header(), answer.header)
		w.WriteHeader(answer.code)
		_, _ = w.Write(answer.Bytes())
	})
}

// scrape composes an answer in memory: a slow client keeps no place that others wait for.
func (s *Server) scrape(r *http.Request, p peer) (*inMemory, error) {
	if err := s.scraping.enter(r.Context(), p, composeWait); err != nil {
		return nil, err
	}
	defer s.scraping.leave(p)
	answer := &inMemory{header: http.Header{}, code: http.StatusOK}
	s.metrics().ServeHTTP(answer, r)
	return answer, nil
}

// newMetrics returns the handler of the metrics of the books. Beside those there are the usual ones
// of a Go process: its memory, processor time and garbage collection.
func (s *Server) newMetrics() http.Handler {
	session := s.config.Session
	books := metrics.New(metrics.Options{Verdicts: s.verdicts, Version: s.config.Version, PID: s.config.MetricsPID})
	registry := prometheus.NewRegistry()
	registry.MustRegister(books, collectors.NewGoCollector(), ofProcess{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})})
	all := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		books.Set(s.now().Snapshot, session.Own())
		all.ServeHTTP(w, r)
	})
}

// inMemory keeps an answer.
type inMemory struct {
	header http.Header
	code   int
	bytes.Buffer
}

func (m *inMemory) Header() http.Header  { return m.header }
func (m *inMemory) WriteHeader(code int) { m.code = code }

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
