// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"runtime"
	"testing"
)

func jitBooks() books {
	return books{"cudaMalloc device cuda:0 main call jitted_outer inner cudaMalloc": {5, 5 * 4096, 5, 5 * 4096}}
}

func TestStacksThroughJITCodeAreWhole(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("jit_c writes x86-64 code")
	}
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	program := startTarget(t, env, dir.Program("jit_c"))
	program.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("done")
	p := s.stop().profile()
	program.end()
	booksOf(t, p).compare(t, jitBooks())
}

func TestStacksThroughCodeCompiledAfterTheAttachAreWhole(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("jit_c writes x86-64 code")
	}
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	program := startTarget(t, env, dir.Program("jit_c"), "--wait")
	program.expectReady()
	s := startRecord(t, env, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("compiled")
	s.untilUnwoundAgain(program.pid())
	program.next()
	program.expect("done")
	p := s.stop().profile()
	program.end()
	booksOf(t, p).compare(t, jitBooks())
}
