// Package guest is what billet adds to the process service of the sandbox
// contract, as the agent and its clients both name it.
//
// The contract has no lossless streams: output that was on its way when a
// stream broke is gone, and a repeated request is a second process. A billet
// client therefore names itself a reader (HeaderReader). For a reader the agent
// keeps every byte of output until the reader has acknowledged it (AckPath), for
// ResumeWindow after its stream was lost; the reader resumes at a byte offset
// (HeaderResumeFrom). Output has one offset per process: the number of bytes of
// stdout, stderr and terminal output before it, in the order of the stream.
// Input has one too (HeaderInputOffset), so that a repeated request adds
// nothing. Clients that do not know these headers meet the plain contract.
package guest

import "time"

// Request and response headers.
const (
	// HeaderReader, on Start and Connect, makes the stream lossless. Its value
	// is the reader's own random name, at most MaxName bytes. With it Start
	// refuses a tag that has been used (already_exists), so that a repeated
	// Start is not a second process.
	HeaderReader = "Billet-Reader"
	// HeaderResumeFrom, on Connect, is the offset of the first byte of output
	// to send. Without it Connect sends what comes from now on. Bytes that are
	// gone are out_of_range.
	HeaderResumeFrom = "Billet-Resume-From"
	// HeaderOffset, on the responses of Start and Connect, is the offset of the
	// first byte that the stream will send.
	HeaderOffset = "Billet-Offset"
	// HeaderInputOffset, on SendInput, is the offset of the first byte of input
	// in the request. Bytes before the agent's own count are dropped.
	HeaderInputOffset = "Billet-Input-Offset"
	// HeaderExitCode, on the error of a Start whose command could not be
	// executed, is the exit code that a shell would give: 126 or 127.
	HeaderExitCode = "Billet-Exit-Code"
	// HeaderFlow, on SendInput, says that the input is the bytes of connections
	// that a client forwards, which somebody may use or nobody: the node counts
	// them, and does not take each call for somebody's doing.
	HeaderFlow = "Billet-Flow"
)

// Paths of billet's own calls on the agent, beside the contract's.
const (
	VersionPath = "/billet/version" // GET: Version as JSON
	AckPath     = "/billet/ack"     // POST: Ack as JSON; 204
	SyncPath    = "/billet/sync"    // POST: 204 once everything written is on the disk
	ResumedPath = "/billet/resumed" // POST: Resumed as JSON; ResumeReport as JSON
	// TerminalsPath, GET, is a list of Terminal as JSON.
	TerminalsPath = "/billet/terminals"
	DialPath      = "/billet/dial"  // GET ?network=tcp|unix&address=…, an upgrade to StreamProtocol
	PortsPath     = "/billet/ports" // GET: Ports as JSON
	JobsPath      = "/billet/jobs"  // POST: Jobs as JSON
)

// StreamProtocol is what DialPath switches to: the bytes of the connection,
// both ways. Before that it refuses with a status and a line of text: 400 for
// what may not be dialled, 502 when nothing listens there, 503 when too many
// connections are open, 504 when what listens does not accept.
const StreamProtocol = "billet-stream"

// Jobs are the foreground jobs of a guest: the commands that clients started,
// and what runs in the foreground of their terminals. It is the guest's word.
type Jobs struct {
	Jobs []Job `json:"jobs"` // at most MaxJobs
}

// Job is one of them.
type Job struct {
	ID     string        `json:"id"`     // the same as long as it is the same job
	Name   string        `json:"name"`   // the beginning of its command line
	Ticks  int64         `json:"ticks"`  // of processor time, of all its processes
	Output int64         `json:"output"` // bytes that it, and what ran in its place before, wrote
	Quiet  time.Duration `json:"quiet"`  // how long ago the newest came; 0: it has written nothing
}

// The bounds of a report.
const (
	MaxJobs    = 64
	MaxJobName = 80
	MaxJobID   = 64
)

// Ports are the TCP ports that something in the guest listens on.
type Ports struct {
	Ports []Listener `json:"ports"`
}

// Listener is one of them.
type Listener struct {
	Address string `json:"address"`
	Port    uint16 `json:"port"`
	UID     uint32 `json:"uid"`
	Process string `json:"process,omitempty"` // the name of one that holds it; "" when nobody was found
}

// Resumed tells a guest that it was restored from a memory image.
type Resumed struct {
	// Epoch names this restore; it is also in RestoreEpochFile.
	Epoch string `json:"epoch"`
	// MachineID, set for the child of a fork, replaces the parent's: 32
	// hexadecimal digits.
	MachineID string `json:"machine_id,omitempty"`
	// Hostname is the guest's name now.
	Hostname string `json:"hostname"`
}

// ResumeReport is what the guest found and did, before anybody attaches.
type ResumeReport struct {
	Now       time.Time    `json:"now"`        // the guest's clock
	Random    string       `json:"random"`     // 32 bytes of the kernel's, in hex
	MachineID string       `json:"machine_id"` // "" when the image has none
	Hooks     []HookReport `json:"hooks,omitempty"`
	Errors    []string     `json:"errors,omitempty"` // what could not be done
}

// HookReport is one program of HookDir.
type HookReport struct {
	Name   string        `json:"name"`
	Code   int           `json:"code"` // exit code; -1: it did not start, or was ended
	Took   time.Duration `json:"took"`
	Output string        `json:"output,omitempty"` // the end of it
}

// Places in a guest that a restore concerns.
const (
	// RestoreEpochFile changes with each restore: a program that draws random
	// numbers of its own, which two forks would draw alike, seeds itself anew
	// when it sees that.
	RestoreEpochFile = "/run/billet-restore-epoch"
	// HookDir has programs that run after a restore, in the order of their
	// names, before anybody attaches.
	HookDir = "/etc/billet/resume.d"
)

// Ack says what a reader has received.
type Ack struct {
	Tag    string `json:"tag"`
	Reader string `json:"reader"`
	Offset int64  `json:"offset"` // bytes of output received
	End    bool   `json:"end"`    // the end event too: the agent may forget the output
	// Leave says that the reader will not come back: nothing is held for it.
	Leave bool `json:"leave,omitempty"`
}

// Terminal is a running process with a terminal that nobody follows.
type Terminal struct {
	Tag    string        `json:"tag"`
	PID    uint32        `json:"pid"`
	Output int64         `json:"output"` // bytes that it has written
	Input  int64         `json:"input"`  // bytes that it has been fed
	Left   time.Duration `json:"left"`   // how long ago its last reader was lost or left
	Held   bool          `json:"held"`   // a reader that was lost may come back
}

// Version is what the agent says of itself.
type Version struct {
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
}

// Protocol is the number of this protocol. It rises when a client or an agent
// of the number before could not work with it.
const Protocol = 1

const (
	// ReplayBytes is how much output of a process the agent keeps for readers.
	// It is also how far a process may run ahead of a reader's
	// acknowledgements, so it bounds the throughput to ReplayBytes per round
	// trip: 50 MB/s at 20 ms, as SSH with its usual window.
	ReplayBytes = 1 << 20
	// ResumeWindow is how long a client tries to resume a broken stream, and
	// how long the agent, which notices the break earlier or later, holds the
	// process back for it.
	ResumeWindow = 60 * time.Second
	// MaxName bounds tags and reader names.
	MaxName = 256
	// MaxMessage bounds one message of the service. An argument list cannot be
	// larger than 2 MiB on Linux, and input is sent in smaller pieces.
	MaxMessage = 4 << 20
)
