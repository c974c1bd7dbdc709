// SPDX-License-Identifier: Apache-2.0

package archive

import "testing"

func TestAJobIsMeantByItsNumberOrItsName(t *testing.T) {
	for _, c := range []struct {
		text, job string
		want      bool
	}{
		{"", "", true}, {"", "llama (7)", true}, {"7", "llama (7)", true}, {"llama", "llama (7)", true}, {"llama (7)", "llama (7)", true}, {"7", "7", true},
		{"7", "llama (77)", false}, {"7", "7 (8)", true}, {"77", "7 (8)", false}, {"lla", "llama (7)", false}, {"7", "", false},
	} {
		if got := MatchesJob(c.text, c.job); got != c.want {
			t.Errorf("%q means %q: %v", c.text, c.job, got)
		}
	}
}
