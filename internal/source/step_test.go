// SPDX-License-Identifier: Apache-2.0

package source

import "testing"

func TestStepsAreMoments(t *testing.T) {
	m, err := ParseMoment("step:41")
	if err != nil || m.step != 41 || m.String() != "step:41" || m.ordered() {
		t.Errorf("%+v, %v", m, err)
	}
	for _, text := range []string{"step:", "step:0", "step:-1", "step:x", "step 4", "step:18446744073709551616"} {
		if m, err := ParseMoment(text); err == nil {
			t.Errorf("%q: %+v", text, m)
		}
	}
	if _, _, err := ParseInterval("step:2,step:6"); err != nil {
		t.Error(err)
	}
}
