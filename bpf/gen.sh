#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Called by go generate: builds the objects for amd64 and arm64 with bpf2go and clang 14,
# and notes what they were built from.
set -eu
export LC_ALL=C
go mod download go.opentelemetry.io/ebpf-profiler
unwinder=$(go list -m -f '{{.Dir}}' go.opentelemetry.io/ebpf-profiler)/support/ebpf
flags="-O2 -g -Wall -Werror -Wno-address-of-packed-member -Wno-unused-function -Wno-unused-variable
 -fno-stack-protector -ffreestanding -nostdinc -std=gnu17 -I$unwinder
 -fdebug-prefix-map=$unwinder=unwinder -fdebug-prefix-map=$PWD=bpf -fdebug-compilation-dir=."
build() { # name, source, more bpf2go flags
	go tool bpf2go -go-package bpf -cc "${CLANG:-clang-14}" -strip "${LLVM_STRIP:-llvm-strip-14}" \
		-target amd64,arm64 "$@" -- $flags ${define:-}
}
probe_types="event_kind event_flag counter details block_layout detail_limit allocator_details role layer effect cuda_result function_limit table
 device_type allocator_number size_class_count sampling block_key_bits block_value_bits block_cookie walk_error sent_stacks_size near_table wrapper runtime_part wrapper_limit"
build $(printf -- '-type %s ' $probe_types) probe probe.bpf.c
define="-DPREEMPT_GUARD -DFIND_CODE" build -no-global-types guarded probe.bpf.c
define=-DNO_COOKIES build -no-global-types older probe.bpf.c
build walk walk.bpf.c
define=-DFIND_CODE build find walk.bpf.c
build -type mapped_file -type mapped_code -type mapped_limit process process.bpf.c
{
	go list -m go.opentelemetry.io/ebpf-profiler github.com/cilium/ebpf
	"${CLANG:-clang-14}" --version | sed -n 's/.*clang version \([0-9.]*\).*/clang \1/p'
	sha256sum *.c *.h gen.sh
} >objects.sum
