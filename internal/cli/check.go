package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/billethq/billet/internal/api"
	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/daemon"
	"github.com/billethq/billet/internal/errs"
)

// lowDisk is how much has to be free for a check to be content: a few flushes
// of a busy workspace.
const lowDisk = 2 << 30

// finding is one line of a check.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

func (a *app) check() *cobra.Command {
	c := &cobra.Command{
		Use: "check", Short: "See whether everything is well",
		Long: `See whether everything is well: the server answers and speaks this version, nodes are
heard and have proved their sandbox boundary, there is an image, and, on the server's
own machine, the disk has room and the object store takes objects. Exit code 9 says
that something is not.`,
		Args: arguments(0, 0),
	}
	json := jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		list := a.findings(cmd.Context())
		if err := a.printFindings(list, *json); err != nil {
			return err
		}
		for _, f := range list {
			if !f.OK {
				return &exit{code: exitUnwell}
			}
		}
		return nil
	}
	return c
}

func (a *app) printFindings(list []finding, asJSON bool) error {
	if asJSON {
		return a.printJSON(api.List[finding]{Items: list})
	}
	for _, f := range list {
		word := "ok"
		if !f.OK {
			word = "FAIL"
		}
		text := fmt.Sprintf("%-4s  %-9s %s", word, f.Check, f.Detail)
		if f.Hint != "" {
			text += "\n                hint: " + f.Hint
		}
		if err := a.line(plain(text)); err != nil {
			return err
		}
	}
	return nil
}

// findings asks in an order in which a failure explains what follows it.
func (a *app) findings(ctx context.Context) []finding {
	var list []finding
	client, err := a.client()
	if err != nil {
		return append(list, failed("server", err))
	}
	defer client.Close()
	info, err := client.Info(ctx)
	if err != nil {
		list = append(list, failed("server", err))
	} else {
		list = append(list, found("server", "answers, deployment "+info.Deployment), checkVersion(info))
		list = append(list, checkNodes(ctx, client)...)
		list = append(list, checkImages(ctx, client))
	}
	if a.flags.address == "" && a.flags.socket == "" {
		cfg, err := a.settings()
		if err != nil {
			return append(list, failed("config", err))
		}
		list = append(list, checkDisk(cfg), checkStore(ctx, cfg))
	}
	return list
}

func found(what, detail string) finding { return finding{Check: what, OK: true, Detail: detail} }

func failed(what string, err error) finding {
	return finding{Check: what, Detail: err.Error(), Hint: errs.HintOf(err)}
}

func checkVersion(info api.Info) finding {
	own := buildVersion()
	if info.Version == own {
		return found("version", own)
	}
	return found("version", "server "+info.Version+", this binary "+own+": both speak API "+api.Version)
}

// checkNodes: a node registers only after it has booted a guest, so that one
// that is heard has proved its boundary.
func checkNodes(ctx context.Context, c *api.Client) []finding {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return []finding{failed("nodes", err)}
	}
	if len(nodes) == 0 {
		return []finding{failed("nodes", errs.New(errs.Unavailable, "none has ever been heard").WithHint("start one with: billet up, or billet node"))}
	}
	var list []finding
	for _, n := range nodes {
		if n.Silent {
			list = append(list, failed("node", errs.New(errs.Unavailable, "%s is silent since %s", n.Name, n.LastSeen.Format("2006-01-02 15:04:05")).
				WithHint("look at its log on that machine; if its host is gone for good: billet node rm %s", n.Name)))
			continue
		}
		list = append(list, found("node", fmt.Sprintf("%s is heard; its %s boundary booted a probe; %d instances", n.Name, n.Driver, n.Instances)))
	}
	return list
}

func checkImages(ctx context.Context, c *api.Client) finding {
	images, err := c.Images(ctx)
	if err != nil {
		return failed("images", err)
	}
	if len(images) == 0 {
		return failed("images", errs.New(errs.NotFound, "there is none").WithHint("make one with: billet image build debian base"))
	}
	names := make([]string, len(images))
	for i, img := range images {
		names[i] = img.Name
	}
	return found("images", strings.Join(names, ", "))
}

func checkDisk(cfg config.Config) finding {
	var st unix.Statfs_t
	if err := unix.Statfs(cfg.State, &st); err != nil {
		return failed("disk", errs.Wrap(errs.NotFound, err, "%s", cfg.State).(*errs.Error).WithHint("name this machine's state directory with --state or --config"))
	}
	free, total := int64(st.Bavail)*st.Bsize, int64(st.Blocks)*st.Bsize
	text := fmt.Sprintf("%s has %s of %s free", cfg.State, bytesText(free), bytesText(total))
	if free < lowDisk {
		return failed("disk", errs.New(errs.Exhausted, "%s", text).WithHint("make room, or move it with --state"))
	}
	return found("disk", text)
}

// checkStore writes and removes an object.
func checkStore(ctx context.Context, cfg config.Config) finding {
	at := cfg.Objects()
	if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
		return storeMissing(cfg)
	}
	if err := daemon.CheckStore(ctx, cfg); err != nil {
		return failed("store", err)
	}
	return found("store", at+" takes objects")
}

// storeMissing tells a server's machine, which needs no store of its own, from
// a node's that has lost it.
func storeMissing(cfg config.Config) finding {
	if _, err := os.Stat(cfg.NodeDir()); errors.Is(err, fs.ErrNotExist) && cfg.StoreDir == "" {
		f := found("store", "not looked at: "+cfg.Objects()+" is not there, and no node has run here")
		f.Hint = "run billet check on each node's machine, with the --config of the node"
		return f
	}
	return failed("store", errs.New(errs.NotFound, "%s is not there", cfg.Objects()).
		WithHint("mount what belongs there, or correct store.dir in the configuration; a node makes one only where nothing is stored yet"))
}
