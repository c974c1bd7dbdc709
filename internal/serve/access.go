// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"os"
	"slices"

	"go.yaml.in/yaml/v2"
)

// webConfig is what decides who may ask, of the file of --web.config.file.
type webConfig struct {
	Users map[string]string `yaml:"basic_auth_users"`
	TLS   struct {
		Clients string `yaml:"client_auth_type"`
	} `yaml:"tls_server_config"`
}

// readConfig reads the file, which the server reads again for each request. One that is missing has
// nothing.
func (l *listeners) readConfig() (x webConfig) {
	text, err := os.ReadFile(l.config)
	if err != nil || yaml.Unmarshal(text, &x) != nil {
		return webConfig{}
	}
	return x
}

// passwords reports whether only requests with a right password are answered.
func (l *listeners) passwords() bool { return len(l.readConfig().Users) > 0 }

// open reports whether anybody who can connect from another machine sees the processes of all
// users.
func (l *listeners) open() bool {
	x := l.readConfig()
	return len(x.Users) == 0 && x.TLS.Clients != "RequireAndVerifyClientCert" && slices.ContainsFunc(l.tcp, func(x net.Listener) bool {
		return !x.Addr().(*net.TCPAddr).IP.IsLoopback()
	})
}
