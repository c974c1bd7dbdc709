// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/vramprof/vramprof/internal/mcp"
	"github.com/vramprof/vramprof/internal/terminal"
)

func mcpCommand() *cli.Command {
	return &cli.Command{
		Name:      "mcp",
		Usage:     "answer questions of programs over the Model Context Protocol",
		UsageText: "vramprof mcp",
		Description: "Speaks the Model Context Protocol on stdin and stdout until stdin ends, so that an assistant can ask about captures, archives, memory snapshots of PyTorch, " +
			"running processes and the running vramprof serve. Each tool runs a command that reads and changes nothing, with the rights of the caller, and answers with its JSON.",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			if terminal.Is(c.App.Writer) && term.IsTerminal(int(os.Stdin.Fd())) {
				fmt.Fprintln(c.App.ErrWriter, "vramprof: waiting for a client of the Model Context Protocol, which starts this command itself; Ctrl-D ends it (see vramprof help mcp)")
			}
			return mcp.Serve(c.Context, &sdk.StdioTransport{}, mcp.Options{Version: version, Run: mcp.Itself})
		},
	}
}
