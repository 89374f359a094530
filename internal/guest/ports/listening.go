package ports

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/billethq/billet/internal/guest"
)

const (
	// maxPorts bounds the list; a machine with more is searched by other means.
	maxPorts = 512
	// maxTable bounds what is read of one table: a line has about 150 bytes,
	// and connections are in it too.
	maxTable = 4 << 20
	// maxProcesses and maxDescriptors bound the search for owners, which walks
	// the descriptors of every process.
	maxProcesses   = 2048
	maxDescriptors = 32 << 10
	// stateListen is TCP_LISTEN in proc(5)'s net/tcp.
	stateListen = "0A"
)

// Listening lists the TCP ports that something listens on, by port and address.
// What cannot be read is not in it: a guest may have no proc, and processes end
// while they are looked at.
func (s *Service) Listening() guest.Ports {
	var found []socket
	for _, table := range []string{"proc/net/tcp", "proc/net/tcp6"} {
		f, err := os.Open(filepath.Join(s.root, table))
		if err != nil {
			continue
		}
		found = append(found, parseTable(io.LimitReader(f, maxTable))...)
		_ = f.Close()
	}
	slices.SortFunc(found, func(a, b socket) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Address, b.Address))
	})
	found = slices.CompactFunc(found, func(a, b socket) bool { return a.Port == b.Port && a.Address == b.Address })
	found = found[:min(len(found), maxPorts)]
	owners := s.owners(found)
	out := guest.Ports{Ports: make([]guest.Listener, 0, len(found))}
	for _, f := range found {
		f.Process = owners[f.inode]
		out.Ports = append(out.Ports, f.Listener)
	}
	return out
}

// socket is a line of a table.
type socket struct {
	guest.Listener
	inode string
}

// parseTable reads proc(5)'s net/tcp or net/tcp6. Lines that are not what that
// says are passed over.
func parseTable(r io.Reader) []socket {
	const local, state, uid, inode = 1, 3, 7, 9
	var out []socket
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) <= inode || f[state] != stateListen {
			continue
		}
		address, ok := parseAddress(f[local])
		owner, err := strconv.ParseUint(f[uid], 10, 32)
		if !ok || err != nil {
			continue
		}
		out = append(out, socket{Listener: guest.Listener{Address: address.Addr().String(), Port: address.Port(), UID: uint32(owner)}, inode: f[inode]})
	}
	return out
}

// parseAddress reads "0100007F:1F90": each 32 bits of the address in the
// machine's order, which is little-endian wherever billet runs.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}

// owners finds the names of the processes that hold the sockets, by inode.
func (s *Service) owners(sockets []socket) map[string]string {
	names := map[string]string{}
	wanted := map[string]string{} // what a descriptor links to: its inode
	for _, k := range sockets {
		if k.inode != "0" {
			wanted["socket:["+k.inode+"]"] = k.inode
		}
	}
	proc := filepath.Join(s.root, "proc")
	looked, processes := 0, numbered(proc)
	for _, pid := range processes[:min(len(processes), maxProcesses)] {
		dir := filepath.Join(proc, pid, "fd")
		for _, fd := range numbered(dir) {
			if len(names) == len(wanted) || looked == maxDescriptors {
				return names
			}
			looked++
			link, err := os.Readlink(filepath.Join(dir, fd))
			if inode, ok := wanted[link]; err == nil && ok && names[inode] == "" {
				names[inode] = command(filepath.Join(proc, pid, "comm"))
			}
		}
	}
	return names
}

// numbered lists the entries of a directory that are numbers.
func numbered(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxDescriptors)
	return slices.DeleteFunc(names, func(n string) bool { return n == "" || n[0] < '0' || n[0] > '9' })
}

// command is a process's name; the kernel keeps 15 bytes of it.
func command(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 64))
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "?")
}
