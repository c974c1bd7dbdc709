// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"cudaMalloc":                "cudaMalloc",
		"operator()(int) const":     "operator()(int) const",
		"größe 大小":                  "größe 大小",
		"\x1b]0;title\aname":        "]0;titlename",
		"a\r\nb\tc\x00d\x7f":        "abcd",
		"\u009b31mred":              "31mred", // CSI as one character
		"user\u202etxt.exe\u2066":   "usertxt.exe",
		"zero\u200bwidth\ufeff":     "zerowidth",
		"line\u2028paragraph\u2029": "lineparagraph",
		"bad\xff\xc0\x80utf8":       "badutf8",
		"real \ufffd stays":         "real \ufffd stays",
		strings.Repeat("x", 5000):   strings.Repeat("x", MaxName-len("…")) + "…",
		strings.Repeat("x", 4096):   strings.Repeat("x", 4096),
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%.40q)\ngot  %.60q\nwant %.60q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"", "plain", "\x1b[31m", "\u202e", "\xff\xfe", strings.Repeat("ä", 3000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := Clean(in)
		if !utf8.ValidString(out) || len(out) > MaxName || Clean(out) != out {
			t.Errorf("Clean(%q) = %q", in, out)
		}
		for _, r := range out {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("Clean(%q) keeps %q", in, r)
			}
		}
	})
}
