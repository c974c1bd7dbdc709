// SPDX-License-Identifier: Apache-2.0

// Package wire defines the messages in the frames of a capture, generated from capture.proto.
package wire

//go:generate ./gen.sh
