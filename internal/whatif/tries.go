// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/remedy"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// asItRan names the scenario that all others are compared with.
const asItRan = "as it ran"

// Tries are the settings to try. Each is all of PYTORCH_CUDA_ALLOC_CONF, not an addition to what
// the job had.
type Tries struct {
	Settings []string // "": PyTorch's default; none: usual ones
	Empty    int      // torch.cuda.empty_cache() after every so many steps; 0: never, or usual ones
	Remedies []remedy.Remedy
}

// usual are tried by default. Sizes are those of PyTorch's documentation.
var usual = Tries{Settings: []string{"", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:4"}, Empty: 1}

// Check returns an error if the settings are not those of PyTorch, or not simulated.
func (t Tries) Check() error {
	for _, conf := range t.Settings {
		if _, err := allocsim.ParseSettings(conf); err != nil {
			return err
		}
	}
	if t.Empty < 0 {
		return fmt.Errorf("every %d steps", t.Empty)
	}
	return nil
}

// Scenarios returns what to replay of a job: as it ran, then what is to be tried and differs from
// it; and which changes of the program cannot be predicted.
func (t Tries) Scenarios(j *Job) ([]Scenario, []reportjson.ConditionReport, error) {
	list, err := t.settings(j)
	if err != nil || len(t.Remedies) == 0 {
		return list, nil, err
	}
	changed, refused := j.changes(t.Remedies, list)
	return append(list, changed...), refused, nil
}

func (t Tries) settings(j *Job) ([]Scenario, error) {
	own := j.Trace.Settings
	list := []Scenario{{Name: asItRan, Settings: own}}
	if j.Late {
		return list, nil
	}
	if len(t.Settings) == 0 && t.Empty == 0 && len(t.Remedies) == 0 {
		t = usual
	}
	for _, conf := range t.Settings {
		s, err := allocsim.ParseSettings(conf)
		if err != nil {
			return nil, err
		}
		s.Fraction, s.NoEmptyCache = own.Fraction, own.NoEmptyCache
		if s == own {
			continue
		}
		if conf == "" {
			conf = "PyTorch's default settings"
		}
		list = append(list, Scenario{Name: conf, Settings: s})
	}
	if t.Empty > 0 && j.Steps >= t.Empty {
		s := own
		s.EmptyEvery = t.Empty
		every := "step"
		if t.Empty > 1 {
			every = fmt.Sprint(t.Empty, " steps")
		}
		list = append(list, Scenario{Name: "torch.cuda.empty_cache() after every " + every, Settings: s})
	}
	return list, nil
}
