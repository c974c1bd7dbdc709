// SPDX-License-Identifier: Apache-2.0

package main

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/mcp"
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
			return mcp.Serve(c.Context, &sdk.StdioTransport{}, mcp.Options{Version: version, Run: mcp.Itself})
		},
	}
}
