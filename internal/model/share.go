package model

import (
	"time"

	"github.com/billethq/billet/internal/errs"
)

// Share makes one port of a workspace public until it expires.
type Share struct {
	Workspace WorkspaceID
	Port      int
	Tenant    TenantID
	Region    RegionID
	Principal PrincipalID // who chose it
	Created   time.Time
	Expires   time.Time
}

// CheckPort refuses what is no TCP port.
func CheckPort(port int) error {
	if port < 1 || port > 65535 {
		return errs.New(errs.Invalid, "port %d is not 1 to 65535", port)
	}
	return nil
}
