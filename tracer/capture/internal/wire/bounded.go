// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth exceeds the nesting of the messages here.
const maxDepth = 8

// Bounded reports whether a serialized message contains at most limit messages and strings: a few
// bytes of the file take a hundred bytes of memory for each.
func Bounded(b []byte, m protoreflect.MessageDescriptor, limit int) bool {
	return count(b, m, &limit, maxDepth)
}

func count(b []byte, m protoreflect.MessageDescriptor, limit *int, depth int) bool {
	if depth == 0 {
		return false
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return false
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		field := m.Fields().ByNumber(number)
		if field == nil || field.Kind() != protoreflect.MessageKind && field.Kind() != protoreflect.BytesKind {
			continue
		}
		if *limit--; *limit < 0 {
			return false
		}
		if field.Kind() == protoreflect.MessageKind && !count(value, field.Message(), limit, depth-1) {
			return false
		}
	}
	return true
}
