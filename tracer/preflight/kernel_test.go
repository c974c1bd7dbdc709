// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"testing"
)

func TestParseKernelFindsTheUpstreamVersion(t *testing.T) {
	for _, c := range []struct{ release, version, signature, want string }{
		{"6.18.44-fc-v669", "#1 SMP PREEMPT_DYNAMIC @0", "", "6.18.44"},
		{"6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024", "Ubuntu 6.8.0-45.45-generic 6.8.12\n", "6.8.12 Ubuntu"},
		{"6.8.0-45-generic", "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024", "", "6.8.0 Ubuntu"},
		{"6.11.0-19-generic", "#19~24.04.1-Ubuntu SMP PREEMPT_DYNAMIC", "Ubuntu 6.11.0-19.19~24.04.1-generic 6.11.11", "6.11.11 Ubuntu, seccomp, callchain"},
		{"5.15.0-1053-aws", "#58-Ubuntu SMP", "Ubuntu 5.15.0-1053.58-aws 5.15.143", "5.15.143 Ubuntu"},
		{"6.1.0-18-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)", "", "6.1.76"},
		{"6.12.9+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1 (2025-01-10)", "", "6.12.9, seccomp"},
		{"6.12.13", "", "", "6.12.13, seccomp"},
		{"6.12.14", "", "", "6.12.14"},
		{"6.13.0-rc1", "", "", "6.13.0, seccomp"},
		{"6.13.3-arch1-1", "", "", "6.13.3"},
		{"6.11.0", "", "", "6.11.0, seccomp"},
		{"6.10.14", "", "", "6.10.14"},
		{"6.6.57", "", "", "6.6.57"},
		{"6.6.58", "", "", "6.6.58, callchain"},
		{"6.6.80", "", "", "6.6.80, callchain"},
		{"6.6.81", "", "", "6.6.81"},
		{"5.10.0-30-amd64", "#1 SMP Debian 5.10.218-1 (2024-06-01)", "", "5.10.218"},
		{"5.14.0-427.el9.x86_64", "#1 SMP", "", "5.14.0"},
		{"4.18.0", "", "", "4.18.0, old"},
		{"5.9.16", "", "", "5.9.16, old"},
		{"5.15", "", "", "5.15.0"},
		{"7.0-custom", "", "", "7.0.0"},
		{"", "", "", `kernel version ""`},
		{"next", "", "", `kernel version "next"`},
		{"99999999999999999999.1.2", "", "", `kernel version "99999999999999999999.1.2": strconv.Atoi: parsing "99999999999999999999": value out of range`},
	} {
		if got := describe(ParseKernel(c.release, c.version, c.signature)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.release, got, c.want)
		}
	}
}

func describe(k Kernel, err error) string {
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprint(k)
	for _, mark := range []struct {
		set  bool
		text string
	}{
		{k.Ubuntu, " Ubuntu"}, {k.Less(oldest), ", old"}, {k.seccompKills(), ", seccomp"}, {k.callchainPanics(), ", callchain"},
	} {
		if mark.set {
			s += mark.text
		}
	}
	return s
}
