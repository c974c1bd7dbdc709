// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Settings are what changes the allocator's decisions: options of PYTORCH_CUDA_ALLOC_CONF, and what
// a program calls. The zero value is PyTorch's default. Settings can be compared with ==.
type Settings struct {
	Expandable bool   // expandable_segments
	MaxSplit   uint64 // max_split_size_mb, in bytes; 0: unlimited
	// Divisions is roundup_power2_divisions: of sizes below 2 MiB, then for each power of two up to
	// those from 32 GiB. 0 or 1: not rounded.
	Divisions [divisionSizes]uint16
	GC        float64 // garbage_collection_threshold, 0 to 1; 0: off. Nothing without Fraction.

	// Fraction is what torch.cuda.set_per_process_memory_fraction allows, of the GPU's memory; 0:
	// not set.
	Fraction float64
	// EmptyEvery calls torch.cuda.empty_cache() after each EmptyEvery-th step; 0: never.
	EmptyEvery int
	// NoEmptyCache leaves out the program's own calls of torch.cuda.empty_cache().
	NoEmptyCache bool
}

const divisionSizes = 16

// ParseSettings reads a value of PYTORCH_CUDA_ALLOC_CONF. An option that changes the allocator and
// that the simulator does not have is an error; those that change only its time or its interface
// are ignored.
func ParseSettings(conf string) (Settings, error) {
	var s Settings
	options, err := splitOptions(conf)
	if err != nil {
		return s, err
	}
	for _, o := range options {
		if err := s.set(o.name, o.value); err != nil {
			return Settings{}, fmt.Errorf("%s:%s: %w", o.name, o.value, err)
		}
	}
	return s, nil
}

type option struct{ name, value string }

// splitOptions divides "a:1,b:[256:1,>:4]" at the commas outside brackets.
func splitOptions(conf string) ([]option, error) {
	var all []option
	depth, begin := 0, 0
	conf = strings.ReplaceAll(conf, " ", "")
	for i := 0; i <= len(conf); i++ {
		switch {
		case i < len(conf) && conf[i] == '[':
			depth++
		case i < len(conf) && conf[i] == ']':
			depth--
		case i == len(conf) || conf[i] == ',' && depth == 0:
			part := conf[begin:i]
			begin = i + 1
			if part == "" {
				continue
			}
			name, value, ok := strings.Cut(part, ":")
			if !ok {
				return nil, fmt.Errorf("%q is not NAME:VALUE", part)
			}
			all = append(all, option{name, value})
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("brackets of %q do not match", conf)
	}
	return all, nil
}

func (s *Settings) set(name, value string) (err error) {
	switch name {
	case "expandable_segments":
		switch value {
		case "True":
			s.Expandable = true
		case "False":
			s.Expandable = false
		default:
			return fmt.Errorf("want True or False")
		}
	case "max_split_size_mb":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n <= largeBuffer>>20 {
			return fmt.Errorf("want more than %d MiB", largeBuffer>>20)
		}
		s.MaxSplit = n << 20
	case "roundup_power2_divisions":
		s.Divisions, err = parseDivisions(value)
		return err
	case "garbage_collection_threshold":
		f, err := strconv.ParseFloat(value, 64)
		if err != nil || !(f > 0 && f < 1) {
			return fmt.Errorf("want more than 0 and less than 1")
		}
		s.GC = f
	case "backend":
		if value != "native" {
			return fmt.Errorf("only the allocator named native is simulated")
		}
	case "pinned_use_cuda_host_register", "pinned_num_register_threads", "release_lock_on_cudamalloc",
		"pinned_use_background_threads", "pinned_use_hip_host_register":
	default:
		return fmt.Errorf("not simulated")
	}
	return nil
}

// parseDivisions reads "4" or "[256:1,512:2,>:4]", whose sizes are in MiB.
func parseDivisions(value string) (d [divisionSizes]uint16, err error) {
	number := func(s string) (uint16, error) {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n > 1<<15 || n != 0 && bits.OnesCount64(n) != 1 {
			return 0, fmt.Errorf("want a power of two")
		}
		return uint16(n), nil
	}
	list, ok := strings.CutPrefix(value, "[")
	if !ok {
		n, err := number(value)
		for i := range d {
			d[i] = n
		}
		return d, err
	}
	last := 0
	first := true
	for _, item := range strings.Split(strings.TrimSuffix(list, "]"), ",") {
		size, text, ok := strings.Cut(item, ":")
		n, err := number(text)
		if !ok || err != nil {
			return d, fmt.Errorf("want [SIZE:DIVISIONS,…], powers of two")
		}
		if size == ">" {
			for i := last; i < divisionSizes; i++ {
				d[i] = n
			}
			return d, nil
		}
		mib, err := strconv.ParseUint(size, 10, 16)
		if err != nil || bits.OnesCount64(mib) != 1 {
			return d, fmt.Errorf("want [SIZE:DIVISIONS,…], powers of two")
		}
		index := bits.Len64(mib) - 1
		if index >= divisionSizes {
			index = divisionSizes - 1
		}
		if first {
			for i := range index {
				d[i] = n
			}
			first = false
		}
		d[index], last = n, index+1
	}
	return d, nil
}

// String returns the settings as PYTORCH_CUDA_ALLOC_CONF has them, then those of a program. The
// defaults are "".
func (s Settings) String() string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if s.Expandable {
		add("expandable_segments:True")
	}
	if s.MaxSplit > 0 {
		add("max_split_size_mb:%d", s.MaxSplit>>20)
	}
	if s.Divisions != ([divisionSizes]uint16{}) {
		add("roundup_power2_divisions:%s", divisionsText(s.Divisions))
	}
	if s.GC > 0 {
		add("garbage_collection_threshold:%v", s.GC)
	}
	conf := strings.Join(all, ",")
	all = all[:0]
	if conf != "" {
		add("%s", conf)
	}
	if s.Fraction > 0 {
		add("torch.cuda.set_per_process_memory_fraction(%v)", s.Fraction)
	}
	if s.EmptyEvery > 0 {
		add("torch.cuda.empty_cache() every %d steps", s.EmptyEvery)
	}
	if s.NoEmptyCache {
		add("without torch.cuda.empty_cache()")
	}
	return strings.Join(all, ", ")
}

func divisionsText(d [divisionSizes]uint16) string {
	same := true
	for _, n := range d {
		same = same && n == d[0]
	}
	if same {
		return strconv.Itoa(int(d[0]))
	}
	var list []string
	for i, n := range d {
		list = append(list, fmt.Sprintf("%d:%d", 1<<i, n))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// round returns the size of the block that a request gets: at least minBlock, and from there on at
// most about twice the request.
func (s *Settings) round(size uint64) uint64 {
	if size < minBlock {
		return minBlock
	}
	// Sizes below 2 MiB are of the first interval, those from 32 GiB of the last.
	log := bits.Len64(size) - 1
	d := uint64(s.Divisions[min(max(log-20, 0), divisionSizes-1)])
	if d <= 1 || size <= minBlock*d {
		return (size + minBlock - 1) &^ (minBlock - 1)
	}
	if size&(size-1) == 0 {
		return size
	}
	part := uint64(1) << log >> (bits.Len64(d) - 1)
	if part == 0 {
		return 2 << log
	}
	return (size + part - 1) &^ (part - 1)
}
