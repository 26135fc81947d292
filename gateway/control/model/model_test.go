package model_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/strandline-io/strandline/gateway/control"
	"github.com/strandline-io/strandline/gateway/control/controltest"
	"github.com/strandline-io/strandline/gateway/control/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	controltest.Run(t, controltest.Engine{Open: func(_ testing.TB, o controltest.Options) control.Store {
		return model.New(model.Options{Now: o.Now, Rand: o.Rand})
	}})
}
