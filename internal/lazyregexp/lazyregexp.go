// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp compiles regular expressions on their first use. Each start of vramprof would
// take some 20 ms of processor time to compile those of rules that only reports need.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression that is compiled on its first use. Any goroutine may use it.
type Regexp struct {
	text string
	once sync.Once
	re   *regexp.Regexp
}

// New returns the regular expression text. If it does not compile, its first use panics:
// TestEachExpressionCompiles finds that.
func New(text string) *Regexp { return &Regexp{text: text} }

func (r *Regexp) compiled() *regexp.Regexp {
	r.once.Do(func() { r.re = regexp.MustCompile(r.text) })
	return r.re
}

// String returns the text of the expression.
func (r *Regexp) String() string { return r.text }

// The methods below are those of regexp.Regexp.

func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

func (r *Regexp) FindString(s string) string { return r.compiled().FindString(s) }

func (r *Regexp) FindStringIndex(s string) []int { return r.compiled().FindStringIndex(s) }

func (r *Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

func (r *Regexp) FindSubmatch(b []byte) [][]byte { return r.compiled().FindSubmatch(b) }

func (r *Regexp) FindAllStringIndex(s string, n int) [][]int {
	return r.compiled().FindAllStringIndex(s, n)
}

func (r *Regexp) ReplaceAllString(s, with string) string {
	return r.compiled().ReplaceAllString(s, with)
}
