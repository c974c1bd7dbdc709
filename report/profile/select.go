// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/google/pprof/profile"
)

// Select returns the samples of one plane, and of one device, "cuda:0" or the UUID of a GPU; "" is
// any.
func (p Profile) Select(plane, device string) Profile {
	if plane == "" && device == "" {
		return p
	}
	out := shallow(p.p)
	out.Sample = slices.DeleteFunc(slices.Clone(p.p.Sample), func(x *profile.Sample) bool {
		return plane != "" && label(x, "plane") != plane || device != "" && label(x, "device") != device && label(x, "gpu_uuid") != device
	})
	return Profile{out.Compact(), p.mine}
}

// Shown returns the same profile, of which pprof shows a sample type by default; "": the usual one.
func (p Profile) Shown(sampleType string) Profile {
	out := shallow(p.p)
	out.DefaultSampleType = cmp.Or(sampleType, out.DefaultSampleType)
	return Profile{out, p.mine}
}

// shallow copies a profile that shares all lists with p.
func shallow(p *profile.Profile) *profile.Profile {
	return &profile.Profile{
		SampleType: p.SampleType, DefaultSampleType: p.DefaultSampleType, Sample: p.Sample, Mapping: p.Mapping, Location: p.Location, Function: p.Function,
		Comments: p.Comments, DocURL: p.DocURL, TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos, PeriodType: p.PeriodType, Period: p.Period,
	}
}

// Write writes the profile, gzip-compressed.
func (p Profile) Write(w io.Writer) error {
	if err := p.p.CheckValid(); err != nil {
		return fmt.Errorf("check profile: %w", err)
	}
	if err := p.p.Write(w); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}
