// SPDX-License-Identifier: Apache-2.0

package html

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/report/format"
	ours "github.com/vramprof/vramprof/report/profile"
)

// downloaded clicks the button, and returns the profile that the browser saved, and its file.
func (p *tab) downloaded() (*profile.Profile, string) {
	p.Helper()
	folder := p.TempDir()
	p.b.call(p.T, "", "Browser.setDownloadBehavior", object{"behavior": "allow", "downloadPath": folder}, nil)
	p.click("#download")
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		files, _ := filepath.Glob(folder + "/vramprof-*.pb.gz")
		if len(files) != 1 {
			continue
		}
		data, err := os.ReadFile(files[0])
		if err != nil || len(data) == 0 {
			continue
		}
		got, err := profile.ParseData(data)
		if err != nil {
			p.Fatalf("%s: %v", files[0], err)
		}
		return got, files[0]
	}
	p.Fatal("nothing was downloaded")
	return nil, ""
}

// total adds up the values of a type, of samples with this label, "plane=host", or of all.
func totalOf(p *profile.Profile, name, label string) float64 {
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
	key, text, _ := strings.Cut(label, "=")
	sum := 0.0
	for _, x := range p.Sample {
		if at >= 0 && (label == "" || slices.Contains(x.Label[key], text)) {
			sum += float64(x.Value[at])
		}
	}
	return sum
}

// downloads: the profile has the figure of the page, and at the end the names, labels and values of
// the session's own profile.
func downloads(p *tab, in Input) {
	p.load("#at=60")
	got, file := p.downloaded()
	if sum, want := totalOf(got, "inuse_space", ""), rowsAt(in, 60); !near(sum, want) || filepath.Base(file) != "vramprof-1m00s.pb.gz" {
		p.Errorf("%s has %.0f bytes, want %.0f", file, sum, want)
	}
	if end := in.Snapshot.Wall.UnixNano(); got.TimeNanos != end-60*int64(second) || got.DurationNanos != 60*int64(second) || got.DefaultSampleType != "inuse_space" || len(got.SampleType) != 2 {
		p.Errorf("of the moment %d after %d ns, %s of %v", got.TimeNanos, got.DurationNanos, got.DefaultSampleType, got.SampleType)
	}
	comments := strings.Join(got.Comments, "\n")
	for _, want := range []string{"llama-7 on gpu-box-3: " + format.Bytes(uint64(rowsAt(in, 60))) + " in use after 1m00s, ", "from a page of vramprof, which lacks the number of objects,", "warning: /usr/lib/libbroken.so.1", "doubt: 12 events were lost"} {
		if !strings.Contains(comments, want) {
			p.Errorf("the comments lack %q: %s", want, comments)
		}
	}
	p.load("#between=30,80&process=4242")
	if got, file = p.downloaded(); !near(totalOf(got, "inuse_space", ""), p.number("#flame", "total")) || filepath.Base(file) != "vramprof-30s-1m20s.pb.gz" {
		p.Errorf("%s has %.0f bytes, the page %.0f", file, totalOf(got, "inuse_space", ""), p.number("#flame", "total"))
	}
	if other := totalOf(got, "inuse_space", "comm=infer"); other != 0 || totalOf(got, "inuse_space", "") == 0 {
		p.Errorf("%.0f bytes of another process", other)
	}
	p.load("#at=end")
	got, file = p.downloaded()
	if folder := os.Getenv("VRAMPROF_SCREENSHOTS"); folder != "" {
		data, _ := os.ReadFile(file)
		os.WriteFile(folder+"/downloaded.pb.gz", data, 0o644)
	}
	p.same(got, in)
}

// heldDownload: at the end, the profile has the holders of the session's own.
func (p *tab) heldDownload(in Input) {
	p.Helper()
	var file bytes.Buffer
	if err := ours.Write(&file, in.Snapshot, in.Stacks); err != nil {
		p.Fatal(err)
	}
	want, err := profile.ParseData(file.Bytes())
	if err != nil {
		p.Fatal(err)
	}
	got, _ := p.downloaded()
	if text := strings.Join(got.Comments, "\n"); !strings.Contains(text, "holders of python3 [4242] at 58s") || !strings.Contains(text, "doubt: no holders of infer [4300]: no Python") {
		p.Errorf("the comments lack the walks: %s", text)
	}
	names := map[string]bool{}
	for _, x := range slices.Concat(got.Sample, want.Sample) {
		for _, name := range x.Label["holder"] {
			names[name] = true
		}
	}
	for name := range names {
		for _, value := range []string{"inuse_space", "inuse_objects", "alloc_space"} {
			if g, w := totalOf(got, value, "holder="+name), totalOf(want, value, "holder="+name); !near(g, w) {
				p.Errorf("%s of %s: %.0f, want %.0f", value, name, g, w)
			}
		}
	}
	if !near(totalOf(got, "inuse_space", ""), totalOf(want, "inuse_space", "")) || len(names) < 5 {
		p.Errorf("%.0f bytes of %d holders, want %.0f", totalOf(got, "inuse_space", ""), len(names), totalOf(want, "inuse_space", ""))
	}
}

// same compares a profile of the end with the session's own.
func (p *tab) same(got *profile.Profile, in Input) {
	p.Helper()
	var file bytes.Buffer
	if err := ours.Write(&file, in.Snapshot, in.Stacks); err != nil {
		p.Fatal(err)
	}
	want, err := profile.ParseData(file.Bytes())
	if err != nil {
		p.Fatal(err)
	}
	for _, x := range want.Sample {
		if x.Label["plane"][0] == "cache" {
			x.Value[0] = 0 // the page does not count segments
		}
	}
	for i, t := range want.SampleType {
		if strings.HasPrefix(t.Type, "peak_") { // a page shows the peak as a moment
			continue
		}
		if *got.SampleType[i] != *t {
			p.Fatalf("type %d is %v, want %v", i, got.SampleType[i], t)
		}
		for _, label := range []string{"", "plane=cache", "device=cuda:1", "comm=infer", "pod=llama-0", "kind=tensor", "api=cuMemCreate", "gpu_uuid=" + gpu1, "device=host"} {
			if g, w := totalOf(got, t.Type, label), totalOf(want, t.Type, label); !near(g, w) {
				p.Errorf("%s of %q: %.0f, want %.0f", t.Type, label, g, w)
			}
		}
	}
	stacks := func(of *profile.Profile) (list []string) {
		for _, x := range of.Sample {
			text := ""
			for _, l := range x.Location {
				for _, line := range l.Line {
					object := ""
					if l.Mapping != nil {
						object = l.Mapping.File
					}
					text += line.Function.Name + " " + line.Function.Filename + " " + object + "\n"
				}
			}
			list = append(list, strings.TrimSuffix(text, markBefore+"  \n"))
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	if g, w := stacks(got), stacks(want); !slices.Equal(g, w) {
		p.Errorf("stacks\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	if ranks := got.Sample[0].NumLabel["rank"]; len(ranks) != 1 || got.Sample[0].NumLabel["pid"][0] < 4242 {
		p.Errorf("numbers of a sample: %v", got.Sample[0].NumLabel)
	}
}
