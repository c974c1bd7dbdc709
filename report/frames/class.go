// SPDX-License-Identifier: Apache-2.0

package frames

import "github.com/vramprof/vramprof/symbolize/callstack"

// Class is whose code a frame is.
type Class uint8

const (
	UserPython    Class = iota // the user's own
	LibraryPython              // site-packages, the standard library
	UserNative                 // the user's own
	LibraryNative              // well-known libraries, the interpreter, what runs before main
	Remark                     // no code: [truncated: …], [no stack trace: …]
)

// ClassOf returns the class of a frame, by the rules of isUser.
func ClassOf(f *callstack.Frame) Class {
	switch user := isUser(f); {
	case f.Mark:
		return Remark
	case f.Python && user:
		return UserPython
	case f.Python:
		return LibraryPython
	case user:
		return UserNative
	}
	return LibraryNative
}
