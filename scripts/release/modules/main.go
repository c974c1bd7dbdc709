// SPDX-License-Identifier: Apache-2.0

// Modules writes what a binary of vramprof consists of: an SBOM in the format SPDX 2.3, and
// Debian's file of copyrights and licenses. It runs in the module that the binary was built from.
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
)

func main() {
	sbom := flag.String("sbom", "", "write the SBOM to `FILE`")
	copyright := flag.String("copyright", "", "write copyrights and licenses to `FILE`")
	version := flag.String("version", "", "`VERSION` of vramprof")
	created := flag.String("created", "", "`TIME` of the release, in RFC 3339")
	flag.Parse()
	if err := run(flag.Arg(0), *sbom, *copyright, *version, *created); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

func run(binary, sbom, copyright, version, created string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	list, err := modules(info)
	if err != nil {
		return err
	}
	if err := os.WriteFile(copyright, []byte(copyrightOf(list)), 0o644); err != nil {
		return err
	}
	text, err := sbomOf(binary, version, created, info.Main.Path, list)
	if err != nil {
		return err
	}
	return os.WriteFile(sbom, text, 0o644)
}
