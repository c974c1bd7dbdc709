// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string          `json:"SPDXID"`
	Name      string          `json:"name"`
	Version   string          `json:"versionInfo"`
	File      string          `json:"packageFileName,omitempty"`
	Supplier  string          `json:"supplier"`
	Location  string          `json:"downloadLocation"`
	Analyzed  bool            `json:"filesAnalyzed"`
	Checksums []spdxChecksum  `json:"checksums,omitempty"`
	Concluded string          `json:"licenseConcluded"`
	Declared  string          `json:"licenseDeclared"`
	Copyright string          `json:"copyrightText"`
	Purpose   string          `json:"primaryPackagePurpose"`
	Refs      []spdxReference `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const noAssertion = "NOASSERTION"

// sbomOf returns the SBOM of a binary. Its namespace has the binary's checksum, so it is unique and
// the same for the same bytes.
func sbomOf(binary, version, created, path string, list []module) ([]byte, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	checksum := hex.EncodeToString(sum[:])
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "vramprof-" + version,
		Namespace: fmt.Sprintf("https://%s/spdx/vramprof-%s-%s", path, version, checksum),
		Creation:  spdxCreation{created, []string{"Tool: vramprof-scripts-release-modules"}},
		Packages: []spdxPackage{{
			ID: "SPDXRef-vramprof", Name: path, Version: version, File: "vramprof", Supplier: "Organization: vramprof",
			Location: "https://" + path, Checksums: []spdxChecksum{{"SHA256", checksum}},
			Concluded: noAssertion, Declared: "Apache-2.0 AND GPL-2.0-only", Copyright: noAssertion, Purpose: "APPLICATION",
			Refs: []spdxReference{packageURL(path, version)},
		}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-vramprof"}},
	}
	for i, m := range list {
		p, err := m.spdx(fmt.Sprintf("SPDXRef-module-%d", i))
		if err != nil {
			return nil, err
		}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{"SPDXRef-vramprof", "DEPENDS_ON", p.ID})
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

func packageURL(path, version string) spdxReference {
	return spdxReference{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")}
}

func (m module) spdx(id string) (spdxPackage, error) {
	p := spdxPackage{
		ID: id, Name: m.path, Version: m.version, Supplier: noAssertion, Location: "https://" + m.path,
		Concluded: noAssertion, Declared: m.license, Copyright: noAssertion, Purpose: "LIBRARY",
		Refs: []spdxReference{packageURL(m.path, m.version)},
	}
	if m.path == "std" {
		p.Location, p.Refs = "https://go.dev/dl/", []spdxReference{packageURL("stdlib", m.version)}
		return p, nil
	}
	hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:"))
	if err != nil {
		return p, fmt.Errorf("checksum of %s: %w", m.path, err)
	}
	p.Checksums = []spdxChecksum{{"SHA256", hex.EncodeToString(hash)}}
	if len(m.copyrights) > 0 {
		p.Copyright = strings.Join(m.copyrights, "\n")
	}
	return p, nil
}
