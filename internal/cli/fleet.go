package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) nodeLs() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List nodes", Args: arguments(0, 0)}
	header := []string{"NAME", "STATE", "DRIVER", "INSTANCES", "VCPUS", "MEMORY", "DISK", "VERSION", "SEEN"}
	return listing(a, c, header, plainly((*api.Client).Nodes), func(now time.Time, n api.Node) []string {
		return []string{
			n.Name, nodeState(n), string(n.Driver), strconv.Itoa(n.Instances), fmt.Sprintf("%d/%d", n.Used.VCPUs, n.Capacity.VCPUs),
			bytesText(n.Used.Memory) + "/" + bytesText(n.Capacity.Memory), bytesText(n.Used.Disk) + "/" + bytesText(n.Capacity.Disk),
			n.Version, age(now, n.LastSeen),
		}
	})
}

func nodeState(n api.Node) string {
	if n.Silent {
		return "silent"
	}
	return "well"
}

func (a *app) tier() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List tiers and their use", Args: arguments(0, 0)}
	header := []string{"NAME", "VCPUS", "MEMORY", "DISK", "IMAGE", "DRIVERS", "CLASSES", "LIVE"}
	return group("tier", "Look at tiers", listing(a, c, header, plainly((*api.Client).Tiers), func(_ time.Time, t api.Tier) []string {
		live := strconv.Itoa(t.Live)
		if t.Max > 0 {
			live += "/" + strconv.Itoa(t.Max)
		}
		return []string{
			t.Name, strconv.Itoa(t.Shape.VCPUs), bytesText(t.Shape.Memory), bytesText(t.Shape.Disk), t.Image,
			words(t.Drivers), orElse(words(t.Classes), "every"), live,
		}
	}))
}

func words[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return strings.Join(out, ",")
}
