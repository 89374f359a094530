package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

// completionTimeout bounds what a press of Tab waits for.
const completionTimeout = time.Second

// completion is what a press of Tab calls.
type completion func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// names completes with a list of the server's: each item's name, and what tells
// it from the others. Without a server there is nothing to offer.
func names[T any](a *app, fetch func(*api.Client, context.Context) ([]T, error), item func(T) (name, about string)) completion {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := a.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer c.Close()
		list, err := fetch(c, ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, v := range list {
			if name, about := item(v); strings.HasPrefix(name, typed) {
				out = append(out, name+"\t"+plain(about))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// first offers c for the first argument, and nothing for those that follow.
func first(c completion) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c(cmd, args, typed)
	}
}

// completeFlag offers c for the value of a flag that the command has.
func completeFlag(cmd *cobra.Command, flag string, c completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, c) // it fails for a flag that is not there
}

// oneOf offers fixed words.
func oneOf(words ...string) completion {
	return completion(cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// workspaceNames completes the first argument.
func (a *app) workspaceNames(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return first(names(a, (*api.Client).Workspaces, func(ws api.Workspace) (string, string) { return ws.Name, string(ws.State) }))(cmd, args, typed)
}

func (a *app) imageNames() completion {
	return names(a, (*api.Client).Images, func(i api.Image) (string, string) { return i.Name, i.Source })
}

func (a *app) nodeNames() completion {
	return names(a, (*api.Client).Nodes, func(n api.Node) (string, string) { return n.Name, nodeState(n) })
}

func (a *app) tierNames() completion {
	return names(a, (*api.Client).Tiers, func(t api.Tier) (string, string) { return t.Name, shapeText(t.Shape) })
}

func (a *app) tokenNames() completion {
	return names(a, (*api.Client).Tokens, func(t api.Token) (string, string) { return t.Name, string(t.Role) })
}
