// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WorkloadText describes a workload in a few words: "rank 3 of 8", "pod ml/llama-0", "Ray Trainer".
// A container or job is named only without a pod.
func WorkloadText(w ledger.Workload) []string {
	var list []string
	add := func(noun, name string) {
		if name != "" {
			list = append(list, noun+" "+format.Cut(name, MaxName))
		}
	}
	switch rank, size := format.Digits(w.Rank), format.Digits(w.WorldSize); {
	case rank == "":
		add("local rank", format.Digits(w.LocalRank))
	case size == "":
		add("rank", rank)
	default:
		add("rank", rank+" of "+size)
	}
	switch {
	case w.Pod != "" && w.Namespace != "":
		add("pod", untrusted.Clean(w.Namespace)+"/"+ShortID(w.Pod))
	case w.Pod != "":
		add("pod", ShortID(w.Pod))
	default:
		add("container", ShortID(w.Container))
		add("job", untrusted.Clean(w.Job))
	}
	add("Ray", untrusted.Clean(w.Actor))
	return list
}

// WorkloadLabels returns the labels of a workload in profiles: names, and ranks as numbers. What is
// empty or no number is left out.
func WorkloadLabels(w *ledger.Workload) (names map[string]string, ranks map[string]int64) {
	names, ranks = map[string]string{}, map[string]int64{}
	for key, text := range map[string]string{"container": w.Container, "pod": w.Pod, "namespace": w.Namespace, "pod_container": w.PodContainer, "job": w.Job, "actor": w.Actor} {
		if text = untrusted.Clean(text); text != "" {
			names[key] = text
		}
	}
	for key, text := range map[string]string{"rank": w.Rank, "local_rank": w.LocalRank, "world_size": w.WorldSize} {
		if n, err := strconv.ParseUint(text, 10, 63); err == nil {
			ranks[key] = int64(n)
		}
	}
	return names, ranks
}

// MaxName is how many columns a name takes at most beside others.
const MaxName = 40 // most columns of a name among others

// ShortID returns the first 12 digits of a long id, as Docker shows it, after the user of a
// rootless container ("user-1000/"). A name stays whole.
func ShortID(id string) string {
	const short = 12
	id = untrusted.Clean(id)
	if user, own, ok := strings.Cut(id, "/"); ok {
		return user + "/" + ShortID(own)
	}
	if len(id) < 32 || strings.Trim(id, "0123456789abcdef-") != "" {
		return id
	}
	return id[:short]
}
