package gvisor

import (
	"context"

	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/errs"
)

// Probe implements driver.Driver.
func (d *Driver) Probe(ctx context.Context) (driver.Boundary, error) {
	return driver.Boundary{}, errs.New(errs.Unsupported, "not yet")
}
