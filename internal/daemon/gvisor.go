package daemon

import (
	"log/slog"

	"github.com/billethq/billet/internal/config"
	"github.com/billethq/billet/internal/driver"
	"github.com/billethq/billet/internal/driver/gvisor"
	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// newDriver makes the driver that the configuration names.
func newDriver(cfg config.Config, guest string, log *slog.Logger) (driver.Driver, error) {
	if cfg.Node.Driver != model.DriverGVisor {
		return nil, errs.New(errs.Unsupported, "driver %q is not in this build", cfg.Node.Driver).WithHint("use gvisor")
	}
	runsc, err := beside("runsc")
	if err != nil {
		return nil, err
	}
	return gvisor.New(gvisor.Config{Runsc: runsc, GuestBinary: guest, Logger: log})
}
