package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

func TestCostCommand(t *testing.T) {
	month := 12.345
	cost := client.Cost{
		Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 7200, Prices: client.Prices{PutPerMillion: 5, GetPerMillion: 0.4, Currency: "EUR"},
		Topics: []client.CostLine{{Topic: "orders", Writes: 12, Reads: 34, Deletes: 5, Refused: 6, BytesUp: 2048, StoredBytes: 1 << 30, Requests: 0.00006, Storage: 0.023, Projected30d: &month}},
		Total:  client.CostLine{Writes: 12},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/cost" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(cost); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	out, err := run(t, "cost", "--admin", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"orders", "12.35", "0.000060", "0.02", "1.0 GiB", "2.0 KiB", "(cluster)", "(deleted topics)", "TOTAL", "EUR", "2026-01-02 03:04:05", "2h0m0s", "extrapolated"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "<nil>") {
		t.Error(out)
	}
	if out, err = run(t, "cost", "--admin", server.URL, "--json"); err != nil {
		t.Fatal(err)
	}
	var got client.Cost
	parse(t, out, &got)
	if len(got.Topics) != 1 || *got.Topics[0].Projected30d != month {
		t.Errorf("%+v", got)
	}
	if _, err = run(t, "cost", "orders"); !isUsage(err) && err == nil {
		t.Errorf("an argument too much: %v", err)
	}
}
