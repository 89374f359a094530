package ports

import (
	"fmt"
	"net"
	"path"
	"strconv"
)

// maxUnixPath is what fits a socket's address on Linux, without the zero.
const maxUnixPath = 107

// target is what a caller may reach: the guest's own loopback or a socket file.
// A guest with a network must not become a way out for whoever may only enter.
type target struct {
	network   string
	addresses []string // tried in turn
	name      string   // for people
}

// parse reads what the caller asks for.
func parse(network, address string) (target, error) {
	switch network {
	case "tcp":
		return parseTCP(address)
	case "unix":
		if !path.IsAbs(address) || len(address) > maxUnixPath {
			return target{}, fmt.Errorf("%q is no absolute path of at most %d bytes", clip(address), maxUnixPath)
		}
		return target{network: network, addresses: []string{address}, name: "socket " + address}, nil
	}
	return target{}, fmt.Errorf("network %q is neither tcp nor unix", clip(network))
}

func parseTCP(address string) (target, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return target{}, fmt.Errorf("%q is no HOST:PORT", clip(address))
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return target{}, fmt.Errorf("%q is no port", clip(text))
	}
	t := target{network: "tcp", name: "port " + strconv.FormatUint(port, 10)}
	var hosts []string
	switch host {
	case "127.0.0.1", "::1":
		hosts = []string{host}
	case "localhost":
		// Without the resolver: an image may have no hosts file, and a server
		// may have bound either.
		hosts = []string{"127.0.0.1", "::1"}
	default:
		return target{}, fmt.Errorf("host %q is not localhost, 127.0.0.1 or ::1", clip(host))
	}
	for _, h := range hosts {
		t.addresses = append(t.addresses, net.JoinHostPort(h, strconv.FormatUint(port, 10)))
	}
	return t, nil
}

// clip bounds a caller's words in an answer.
func clip(s string) string { return s[:min(len(s), maxUnixPath)] }
