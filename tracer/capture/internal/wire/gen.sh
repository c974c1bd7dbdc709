#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Called by go generate: generates capture.pb.go from capture.proto with Debian's protoc (package
# protobuf-compiler) and the plugin of the library's release in go.mod. It omits protoc's version
# from the output, so every release generates the same file. OUT=FOLDER: write to that folder.
set -eu
cd "$(dirname "$0")"
out=${OUT:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work" google.golang.org/protobuf/cmd/protoc-gen-go
protoc --plugin="$work/protoc-gen-go" --go_out="$work" --go_opt=paths=source_relative capture.proto
sed -E 's|^(// ?[-\t ]*protoc +)\(?v[0-9.]+.*|\1(any)|' "$work/capture.pb.go" >"$out/capture.pb.go"
