// Package guestpath names the places inside a guest on which the host and the
// guest agent agree.
package guestpath

const (
	// SideDir is where a guest sees its instance's side directory, read-only.
	// It lies on a memory file system: nothing of it reaches the guest's disk
	// but an empty directory to mount on.
	SideDir = "/run/billet"

	// AgentSocket is the Unix socket in SideDir on which the node listens.
	AgentSocket = "agent.sock"

	// Binary is the guest agent, shown read-only and run as PID 1. It is not
	// below SideDir, because mounting it there would put a file into a
	// directory that belongs to the node.
	Binary = "/run/billet-guest"
)
