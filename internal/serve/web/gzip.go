// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strings"
)

// gzipHeader begins a gzip stream.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// packText compresses a text so that it can follow any other in a gzip stream.
func packText(text []byte, zipped bool) []byte {
	if !zipped {
		return text
	}
	out, _ := packed(nil, text, false) // a buffer takes everything
	return out
}

// packed compresses a text behind a header; end ends the stream.
func packed(header, text []byte, end bool) ([]byte, error) {
	out := bytes.NewBuffer(append([]byte{}, header...))
	z, err := flate.NewWriter(out, flate.BestSpeed+2)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if !end {
		err := z.Flush()
		return out.Bytes(), err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	tail := binary.LittleEndian.AppendUint32(out.Bytes(), crc32.ChecksumIEEE(text))
	return binary.LittleEndian.AppendUint32(tail, uint32(len(text))), nil
}

// acceptsGzip reports whether a client takes gzip.
func acceptsGzip(r *http.Request) bool {
	for _, item := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(item), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
