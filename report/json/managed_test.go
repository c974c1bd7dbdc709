// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
)

func TestManagedMemoryIsReportedBesideTheGPUs(t *testing.T) {
	s, st := reporttest.ManagedSnapshot(), reporttest.Stacks()
	var b bytes.Buffer
	if err := text.WriteLeaks(&b, s, st, report.Options{}, text.Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nLive GPU memory: 2.00 GiB in 1 allocation from 1 site\n", "\nLive managed memory: 60.0 GiB in 1 allocation from 1 site\n",
		"\nManaged memory is in no GPU's sum: NVML counts it for no process.\n", "\nother CUDA                           2.00 GiB\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if r := NewLeaks(s, st, report.Options{}); r.ManagedBytes != 60<<30 || r.ManagedCount != 1 || r.HostBytes != 0 || r.Sites[1].Plane != report.PlaneManaged {
		t.Errorf("JSON: %d managed bytes of %d, %d of the host, sites %+v", r.ManagedBytes, r.ManagedCount, r.HostBytes, r.Sites)
	}
	for _, r := range planeReports(s) {
		if r.Plane == report.PlaneManaged && (r.ApartBytes != 60<<30 || r.Bytes != 0 || r.HostBytes != 0) {
			t.Errorf("plane %+v, want 60 GiB apart", r)
		}
	}
}
