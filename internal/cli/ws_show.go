package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/clock"
)

func (a *app) wsShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show a workspace and how old its last durable state is",
		Args: arguments(1, 1), ValidArgsFunction: a.workspaceNames,
	}
	watch := c.Flags().Bool("watch", false, "first wait until it is what its owner wants")
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		if *watch {
			if _, err := a.wait(ctx, client, args[0], api.UntilSettled); err != nil {
				return err
			}
		}
		ws, err := client.Workspace(ctx, args[0])
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(ws)
		}
		return a.showWorkspace(ws)
	})
	return c
}

func (a *app) showWorkspace(ws api.Workspace) error {
	node := ""
	if in := ws.Instance; in != nil {
		node = fmt.Sprintf("%s (%s, instance %s, epoch %d)", in.Node, in.Driver, in.ID, in.Epoch)
	}
	unsaved := ""
	if ws.UnsavedBytes > 0 {
		unsaved = bytesText(ws.UnsavedBytes)
	}
	return a.fields(
		"name", ws.Name,
		"id", string(ws.ID),
		"state", string(ws.State),
		"detail", causeText(ws),
		"class", string(ws.Class),
		"tier", ws.Tier+" ("+shapeText(ws.Shape)+")",
		"image", ws.Image,
		"node", node,
		"phases", phasesText(ws),
		"durable", fmt.Sprintf("%s (snapshot %d, %s)", savedText(ws), ws.HeadSeq, ws.Head.Short()),
		"unsaved", unsaved,
		"resume", resumeText(ws),
		"flush", ws.FlushError,
		"created", age(clock.Real{}.Now(), ws.Created)+" ago",
	)
}

// resumeText is how the workspace comes back.
func resumeText(ws api.Workspace) string {
	next := ws.NextResume
	switch {
	case next == nil || ws.State == api.WorkspaceRunning || ws.State == api.WorkspaceStarting:
		return "" // it is there, or on its way already
	case next.How == api.ResumeMemory && next.Until != nil:
		return fmt.Sprintf("with memory (%s, kept until %s)", bytesText(next.Bytes), next.Until.Local().Format(time.DateTime))
	}
	return "cold: " + next.Why
}

// savedText is how old the newest durable state is.
func savedText(ws api.Workspace) string {
	return duration(time.Duration(ws.DurableAge*float64(time.Second))) + " ago"
}

// phasesText tells the way of the newest instance, each step with its time
// since the first one.
func phasesText(ws api.Workspace) string {
	out := ""
	for i, p := range ws.Phases {
		if i > 0 {
			out += ", "
		}
		out += p.Name + " " + seconds(p.At.Sub(ws.Phases[0].At))
		if p.Detail != "" {
			out += " (" + p.Detail + ")"
		}
	}
	return out
}
