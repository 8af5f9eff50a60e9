// The published types of Grafana's dashboards as JSON has them. `test_dashboard_types.py` declares the parts of the dashboard with them.
import type * as dashboard from "@grafana/schema/dist/types/raw/dashboard/x/dashboard_types.gen.d.ts";
import type * as stat from "@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts";
import type * as table from "@grafana/schema/dist/types/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.d.ts";
import type * as timeseries from "@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts";

// a member of an enum is its text or its number
type Json<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer Item)[] ? Json<Item>[] : T extends object ? { [Key in keyof T]: Json<T[Key]> } : T;

// the types leave the options of a panel and the custom part of its fields open; each type of panel defines them
type Of<Type extends string, Options, Custom> = Omit<dashboard.Panel, "type" | "options" | "fieldConfig"> & {
  type: Type;
  options: Options;
  fieldConfig: Omit<dashboard.FieldConfigSource, "defaults"> & {
    defaults: Omit<dashboard.FieldConfig, "custom"> & { custom?: Custom };
  };
};

export type Board = Json<Omit<dashboard.Dashboard, "panels">>;
export type Row = Json<dashboard.RowPanel>;
export type Stat = Json<Of<"stat", stat.Options, never>>;
export type Table = Json<Of<"table", table.Options, table.FieldConfig>>;
export type Timeseries = Json<Of<"timeseries", timeseries.Options, timeseries.FieldConfig>>;
