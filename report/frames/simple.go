// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"strings"
	"unicode/utf8"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// ShortName returns the name of a frame, of native code the simple one.
func ShortName(f *callstack.Frame) string {
	if f.Python || f.Mark {
		return Name(f)
	}
	return SimpleName(Name(f))
}

// SimpleName returns the name of a native function as people say it: without parameters, return
// type, ABI tags and clone suffixes, and with "<…>" for template arguments.
//
//	void at::native::f<float>(int) const        at::native::f<…>
//	run(int)::{lambda(int)#1}::operator()(int)  run::{lambda#1}::operator()
//	<Vec<u8> as Drop>::drop                     <Vec<…> as Drop>::drop
//
// Names in other forms are returned as they are: "main.(*Server).handle", "libx.so+0x1234". It
// needs time in proportion to the length of the name.
func SimpleName(name string) string {
	const restarts = 3 // int (*(*f(int))(int))(int)
	for s, n := name, 0; ; n++ {
		if s == "" { // " ( "
			return name
		}
		if !strings.ContainsAny(s, "(<[ ") {
			return s
		}
		p := simplifier{s: s}
		switch p.run() {
		case simplified:
			return p.result(name)
		case within:
			if n < restarts {
				s = p.s
				continue
			}
		}
		return name
	}
}

// verdict is how a simplifier ends.
type verdict uint8

const (
	more       verdict = iota // has not ended
	simplified                // result has the name
	within                    // the name is in s: of "void (*f(int))(char)", "f(int))"
	unknown                   // the name has another form
)

// simplifier reads a name from its begin to its end, over brackets at once.
type simplifier struct {
	s     string
	at    int
	out   []byte
	word  int  // where the last word of out begins; what is before it is a return type
	whole bool // out is in a conversion operator, whose type has spaces: "operator unsigned int"
	call  bool // there were parameters, so there can be a return type
}

func (p *simplifier) run() verdict {
	for p.at < len(p.s) {
		v := more
		switch c := p.s[p.at]; c {
		case '(':
			v = p.round()
		case '<':
			v = p.angle()
		case '{':
			v = p.curly()
		case '[':
			v = p.square()
		case ' ':
			p.put(1)
			if !p.whole {
				p.word = len(p.out)
			}
		default:
			if c != 'o' || !p.operator() {
				p.put(1)
			}
		}
		if v != more {
			return v
		}
	}
	return simplified
}

func (p *simplifier) result(name string) string {
	out := p.out
	if p.call {
		out = out[p.word:]
	}
	if text := strings.TrimSpace(string(out)); text != "" && utf8.ValidString(text) == utf8.ValidString(name) {
		return text
	}
	return name
}

// put copies the next n bytes.
func (p *simplifier) put(n int) {
	p.out = append(p.out, p.s[p.at:p.at+n]...)
	p.at += n
}

func (p *simplifier) rest() string { return p.s[p.at:] }

// round reads "(anonymous namespace)", parameters, or a function's name in its return type.
func (p *simplifier) round() verdict {
	const anonymous = "(anonymous namespace)"
	end := closing(p.rest())
	last := byte(' ')
	if len(p.out) > 0 {
		last = p.out[len(p.out)-1]
	}
	switch {
	case strings.HasPrefix(p.rest(), anonymous):
		p.put(len(anonymous))
		return more
	case strings.HasPrefix(p.rest(), "(.") && last == ' ': // f(int) (.cold)
		return simplified
	case p.after("decltype"): // decltype (x) f(int)
		if end < 0 {
			return unknown
		}
		p.at += end
		return more
	case last == '.' && end > 0: // main.(*Server).handle
		p.put(end)
		return more
	case len(p.out) == p.word: // void (*f(int))(char)
		inner := strings.TrimLeft(p.rest()[1:], "*& ")
		if len(inner) == len(p.rest())-1 || len(p.out) == 0 {
			return unknown
		}
		p.s = inner
		return within
	}
	p.call, p.whole = true, false
	if end < 0 {
		return simplified
	}
	p.at += end
	return p.afterParameters()
}

// after reports whether out ends with a word, or with it and a space.
func (p *simplifier) after(word string) bool {
	return strings.HasSuffix(strings.TrimSuffix(string(p.out[max(len(p.out)-len(word)-1, 0):]), " "), word)
}

// afterParameters skips "const &" and goes on if the function has functions in it: "f(int) const::
// {lambda()#1}".
func (p *simplifier) afterParameters() verdict {
	for found := true; found; {
		found = false
		for _, word := range []string{" const", " volatile", " restrict", " noexcept", " &&", " &"} {
			if strings.HasPrefix(p.rest(), word) {
				p.at += len(word)
				found = true
			}
		}
		if end := closing(p.rest()); end > 0 && strings.HasPrefix(p.rest(), "[abi:") {
			p.at += end
			found = true
		}
	}
	switch rest := p.rest(); {
	case strings.HasPrefix(rest, "::"):
		return more
	case rest == "" || strings.IndexByte(" [.@()&", rest[0]) >= 0:
		return simplified
	}
	return unknown // (II)V
}

// angle reads template arguments, or a type of Rust: "<T as Trait>", "<impl A for B>".
func (p *simplifier) angle() verdict {
	end := closing(p.rest())
	if end < 0 { // a name that was cut
		p.out = append(p.out, "<…>"...)
		p.call = p.call || p.word > 0
		return simplified
	}
	inner := p.rest()[1 : end-1]
	begins := len(p.out) == p.word
	switch {
	case inner == "":
		p.put(end)
		return more
	case begins && strings.HasPrefix(p.rest()[end:], "::"), strings.HasPrefix(inner, "impl "):
		p.out = append(p.out, '<')
		p.out = append(p.out, withoutArguments(inner)...)
		p.out = append(p.out, '>')
	default:
		p.out = append(p.out, "<…>"...)
	}
	p.at += end
	return more
}

// withoutArguments shortens all template arguments: "Vec<u8> as Drop".
func withoutArguments(s string) []byte {
	var out []byte
	for i := 0; i < len(s); {
		if s[i] == '<' {
			if end := closing(s[i:]); end > 0 {
				out = append(out, "<…>"...)
				i += end
				continue
			}
			return append(out, "<…"...)
		}
		out = append(out, s[i])
		i++
	}
	return out
}

// curly reads "{lambda(int)#1}", "{{closure}}", "{unnamed type#1}".
func (p *simplifier) curly() verdict {
	end := closing(p.rest())
	if end < 0 {
		end = len(p.rest())
	}
	group := p.rest()[:end]
	p.at += end
	if from := strings.IndexAny(group, "<("); from >= 0 {
		if to := strings.LastIndexByte(group, ')'); to > from {
			group = group[:from] + group[to+1:]
		}
	}
	p.out = append(p.out, group...)
	return more
}

// square reads "[abi:cxx11]", "[clone .cold]" and what is no name of C++: "main.f[...]".
func (p *simplifier) square() verdict {
	end := closing(p.rest())
	switch {
	case strings.HasPrefix(p.rest(), "[clone"):
		return simplified
	case end < 0:
		p.put(len(p.rest()))
	case strings.HasPrefix(p.rest(), "[abi:"):
		p.at += end
	default:
		p.put(end)
	}
	return more
}

// Longer ones first.
var operators = []string{"()", "[]", " new[]", " delete[]", " new", " delete", " co_await", "->*", "<=>", "<<=", ">>=", "->", "<<", ">>", "<=", ">=",
	"==", "!=", "&&", "||", "++", "--", "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "+", "-", "*", "/", "%", "^", "&", "|", "~", "!", "=", "<", ">", ","}

// operator reads "operator<", "operator new[]" and the begin of "operator unsigned int", if that is
// what follows.
func (p *simplifier) operator() bool {
	const word = "operator"
	if !strings.HasPrefix(p.rest(), word) || p.at > 0 && inWord(p.s[p.at-1]) {
		return false
	}
	rest := p.rest()[len(word):]
	if rest == "" || inWord(rest[0]) {
		return false
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) && (op[0] != ' ' || len(rest) == len(op) || !inWord(rest[len(op)])) {
			p.put(len(word) + len(op))
			if strings.HasPrefix(p.rest(), " <") { // operator< <int>(A)
				p.at++
			}
			return true
		}
	}
	p.whole = true
	p.put(len(word))
	return true
}

func inWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// closing returns the length of the bracket that s begins with and all in it; -1 if it is not
// closed. In round brackets, < and > can be operators.
func closing(s string) int {
	var open []byte
	count := [256]int{}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '(', '<', '{', '[':
			open = append(open, c)
			count[c]++
		case '-':
			if i+1 < len(s) && s[i+1] == '>' {
				i++
			}
		case ')', '}', ']', '>':
			from := opening[c]
			if count[from] == 0 || c == '>' && open[len(open)-1] != '<' {
				continue
			}
			for top := byte(0); top != from; {
				top = open[len(open)-1]
				open = open[:len(open)-1]
				count[top]--
			}
			if len(open) == 0 {
				return i + 1
			}
		}
		if len(open) == 0 {
			return -1
		}
	}
	return -1
}

var opening = [256]byte{')': '(', '}': '{', ']': '[', '>': '<'}
