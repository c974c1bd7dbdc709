// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"strings"
	"testing"
	"unicode/utf8"

	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/libraries"
)

func TestListHasAColumnForWorkloadsOnlyIfThereAreAny(t *testing.T) {
	gpu := 0
	train := listed{PID: 1234567, GPU: &gpu, Bytes: 80 << 30, Command: "/usr/bin/python3 train.py --config configs/llama-70b.yaml --fsdp"}
	long := train
	long.OnBehalf = "rank 1023 of 1024, pod research/llama-70b-pretraining-worker-1023"
	short := train
	short.OnBehalf = "rank 0"
	idle := listed{PID: 7, Command: "nvidia-persistenced"}
	for _, c := range []struct {
		name    string
		list    []listed
		columns int
		want    string
	}{
		{"none", []listed{train, idle}, 80, `
PID      GPU  USED    COMMAND
1234567  0    80 GiB  python3 train.py --config configs/llama-70b.yaml …
7        -    -       nvidia-persistenced`},
		{"one", []listed{short, idle}, 80, `
PID      GPU  USED    WORKLOAD  COMMAND
1234567  0    80 GiB  rank 0    python3 train.py --config configs/llama…
7        -    -       -         nvidia-persistenced`},
		{"a long one", []listed{long, short}, 80, `
PID      GPU  USED    WORKLOAD                        COMMAND
1234567  0    80 GiB  rank 1023 of 1024, pod resear…  python3 train.py …
1234567  0    80 GiB  rank 0                          python3 train.py …`},
		{"a narrow terminal", []listed{long}, 40, `
1234567 GPU 0 80 GiB
  rank 1023 of 1024, pod research/llama…
  python3 train.py --config configs/lla…`},
		{"a very narrow one", []listed{short, idle}, 20, `
1234567 GPU 0 80 GiB
  rank 0
  python3 train.py …
7
  nvidia-persistenc…`},
	} {
		var out strings.Builder
		if err := Write(&out, &reportjson.ProcessesReport{Processes: c.list}, c.columns); err != nil {
			t.Fatal(err)
		}
		if got := "\n" + strings.TrimRight(out.String(), "\n"); got != c.want {
			t.Errorf("%s: got%s\nwant%s", c.name, got, c.want)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > c.columns {
				t.Errorf("%s: %d columns, want at most %d: %s", c.name, n, c.columns, line)
			}
		}
	}
}

// TestMemoryWithoutAProcessIsListedWithoutProcesses: it is what a user looks for then.
func TestMemoryWithoutAProcessIsListedWithoutProcesses(t *testing.T) {
	for unattributed, want := range map[uint64]string{
		0:        "",
		30 << 30: "PID  GPU  USED    COMMAND\n-    0    30 GiB  driver, reserved and not attributed\n",
	} {
		var out strings.Builder
		if err := Write(&out, &reportjson.ProcessesReport{GPUs: []reportjson.GPUMemoryReport{{Unattributed: unattributed}}}, 80); err != nil || out.String() != want {
			t.Errorf("%q, %v; want %q", out.String(), err, want)
		}
	}
}

// Root was told to run as root.
func TestTheReasonWhyAProcessCouldNotBeRead(t *testing.T) {
	unread := libraries.Unread{Denied: []uint32{1, 7}, Stalling: []uint32{9}}
	for who, want := range map[[2]bool]string{
		{false, true}: "2 processes could not be read: of those, only what NVML lists is known (this root lacks CAP_SYS_PTRACE on the host)",
		{}:            "2 processes could not be read: of those, only what NVML lists is known (run as root on the host, or with CAP_SYS_PTRACE)",
		{true, true}:  "2 processes could not be read: of those, only what NVML lists is known (the kernel denies it even with CAP_SYS_PTRACE, as a security module can; the first is pid 1)",
	} {
		notes := unreadNotes(unread, who[0], who[1])
		if len(notes) != 2 || notes[0] != want || notes[1] != "1 process could not be read: of those, only what NVML lists is known (reads of their memory maps take too long; the first is pid 9)" {
			t.Errorf("privileged, root %v: %q", who, notes)
		}
	}
	if notes := unreadNotes(libraries.Unread{}, true, true); notes != nil {
		t.Errorf("without any: %q", notes)
	}
}

func TestTheNameOfAProgramIsSeenFirst(t *testing.T) {
	for command, want := range map[string]string{"/opt/env/bin/python3 /srv/train.py --n 5": "python3 /srv/train.py --n 5", "/bin/true": "true", "": ""} {
		if got := WithoutFolder(command); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
